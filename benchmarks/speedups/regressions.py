"""`regressions.py NAME before|after`: the job of `text_job.py`, slower after a known change.

Each says in which phase its steps become longer and at which function; None: no line of the user's own.
"""

import gc
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import dependency
import torch
from text_job import BATCH, Model, Text, Training
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader


class ReadEachStep(Training):
    """Reads a number of every gradient in each step."""

    def update(self, batch: Tensor) -> float:
        found = super().update(batch)
        self.read()
        return found

    def read(self) -> None:
        """A norm of each row of each gradient, number by number."""
        for weight in self.model.parameters():
            if weight.grad is not None and weight.grad.dim() > 1:
                self.norms = [row.norm().item() for row in weight.grad]


class LoggedEachStep(Training):
    """Writes a line for each parameter in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.logger = logging.getLogger("job")
        self.logger.addHandler(logging.FileHandler(os.devnull))
        self.logger.setLevel(logging.INFO)

    def update(self, batch: Tensor) -> float:
        found = super().update(batch)
        self.log()
        return found

    def log(self) -> None:
        """Weights as text."""
        for name, weight in self.model.named_parameters():
            self.logger.info("%s %s", name, weight.detach().reshape(-1)[:100].tolist())


class DoubleNumbers(Training):
    """A double-precision constant makes the whole model double."""

    def make_model(self) -> Model:
        return Model().double()


class HookLeft(Training):
    """Somebody left a hook on that counts what modules put out."""

    def make_model(self) -> Model:
        model = Model()
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.register_forward_hook(self.seen)
        return model

    @staticmethod
    def seen(module: nn.Module, inputs: object, output: Tensor) -> None:
        """Quantiles of an output."""
        torch.sort(output.detach().reshape(-1)[:30000])


class Wide(Training):
    """A wide layer beside the model, on two threads."""

    threads = 2

    def __init__(self) -> None:
        super().__init__()
        self.wide = torch.randn(1024, 1024)

    def loss(self, batch: Tensor) -> Tensor:
        self.side = self.wide @ self.wide
        return super().loss(batch)


class OneThread(Wide):
    """On one."""

    threads = 1


class Normalised(Training):
    """Every batch goes through a package."""

    def batches(self) -> Iterable[Tensor]:
        for batch in super().batches():
            yield dependency.normalised(batch)


class NewDependency(Normalised):
    """A newer version of the package is slower."""

    def __init__(self) -> None:
        super().__init__()
        dependency.VERSION = 2


class SlowCollate(Training):
    """Batches are put together number by number."""

    def batches(self) -> Iterable[Tensor]:
        return DataLoader(self.text, batch_size=BATCH, shuffle=True, collate_fn=self.collated)

    @staticmethod
    def collated(samples: list[Tensor]) -> Tensor:
        """A batch."""
        return torch.stack([torch.stack([word.clone() for word in sample]) for sample in samples])


class NeedlessCopies(Training):
    """Keeps a copy of all weights and moments, in case."""

    def update(self, batch: Tensor) -> float:
        found = super().update(batch)
        self.copy()
        return found

    def copy(self) -> None:
        """Of everything, several times."""
        for _ in range(8):
            state = {**self.model.state_dict(), "optimizer": self.optimizer.state_dict()["state"]}
            self.kept = [
                each.clone().numpy().tobytes() for each in state.values() if isinstance(each, Tensor)
            ]


class Collected(Training):
    """Collects garbage in every step."""

    def update(self, batch: Tensor) -> float:
        gc.collect()
        return super().update(batch)


class SlowLoss(Training):
    """Cross-entropy written out, one position after the other."""

    def loss(self, batch: Tensor) -> Tensor:
        logits = self.model(batch[:, :-1])
        return self.by_position(logits, batch[:, 1:])

    @staticmethod
    def by_position(logits: Tensor, words: Tensor) -> Tensor:
        """The mean over positions."""
        each = [functional.cross_entropy(logits[:, at], words[:, at]) for at in range(words.shape[1])]
        return torch.stack(each).mean()


class SlowUpdate(Training):
    """An optimizer of one's own, in Python."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        class Own(torch.optim.AdamW):
            def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
                for group in self.param_groups:
                    for weight in group["params"]:
                        for row in weight.data.reshape(-1, weight.shape[-1]):
                            row.mul_(1.0)
                super().step(closure)

        return Own(self.model.parameters(), lr=1e-3, foreach=False)


class ParsedText(Text):
    """Samples are kept as text and read anew each time."""

    def __init__(self, count: int, seed: int) -> None:
        super().__init__(count, seed)
        self.lines = [json.dumps(row) for row in self.words.tolist()]

    def __getitem__(self, index: int) -> Tensor:
        return self.parse(self.lines[index])

    def parse(self, line: str) -> Tensor:
        """Word by word."""
        for _ in range(60):
            words = [int(word) for word in line.strip("[]").split(",")]
        return torch.tensor(words)


class Parsed(Training):
    """The samples are text now."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ParsedText(len(self.text), 1)


class ParsedByWorker(Parsed):
    """A worker reads them."""

    def batches(self) -> Iterable[Tensor]:
        return DataLoader(self.text, batch_size=BATCH, shuffle=True, num_workers=1)


@dataclass(frozen=True, slots=True)
class Regression:
    """Attributes:
    phases: Any of which is right.
    functions: Any of which may be named; empty: none of the user's.
    """

    after: type[Training]
    phases: tuple[str, ...]
    functions: tuple[str, ...] = ()
    before: type[Training] = Training


IN_STEP, BETWEEN, LOADING = ("forward", "backward", "optimizer"), ("other",), ("data_wait",)
REGRESSIONS = {
    "read_each_step": Regression(ReadEachStep, BETWEEN, ("read", "<listcomp>")),
    "logged_each_step": Regression(LoggedEachStep, BETWEEN, ("log",)),
    "no_worker": Regression(Parsed, LOADING, ("parse", "<listcomp>"), ParsedByWorker),
    "double_numbers": Regression(DoubleNumbers, IN_STEP, ("update", "forward", "attention")),
    "hook_left": Regression(HookLeft, ("forward",), ("seen",)),
    "one_thread": Regression(OneThread, ("other", "forward", "backward"), ("loss",), Wide),
    "new_dependency": Regression(NewDependency, BETWEEN, ("normalised", "<listcomp>"), Normalised),
    "slow_collate": Regression(SlowCollate, LOADING, ("collated", "<listcomp>")),
    "needless_copies": Regression(NeedlessCopies, BETWEEN, ("copy", "<listcomp>")),
    "collected": Regression(Collected, BETWEEN),
    "slow_loss": Regression(
        SlowLoss, ("other", "forward", "backward"), ("by_position", "<listcomp>", "update")
    ),
    "slow_update": Regression(SlowUpdate, ("optimizer",), ("step",)),
}

if __name__ == "__main__":
    found = REGRESSIONS[sys.argv[1]]
    (found.after if sys.argv[2] == "after" else found.before)().run()
