"""`regressions.py NAME before|after`: the job of `text_job.py`, slower after a known change.

Each says in which phase its steps become longer and at which function; None: no line of the user's own.
"""

from __future__ import annotations

import gc
import json
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import dependency
import torch
from text_job import BATCH, WORDS, Model, Text, Training
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Sampler


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


class PenaltyWrittenOut(Training):
    """Weight decay in the loss, row by row."""

    def loss(self, batch: Tensor) -> Tensor:
        return super().loss(batch) + self.penalty()

    def penalty(self) -> Tensor:
        """A very small part of the weights' squares."""
        return 1e-9 * torch.stack([row.square().sum() for row in self.model.head.weight]).sum()


class ClippedByRow(Training):
    """Gradients are clipped row by row."""

    def update(self, batch: Tensor) -> float:
        self.optimizer.zero_grad()
        loss = self.loss(batch)
        loss.backward()
        self.clip()
        self.optimizer.step()
        return loss.item()

    def clip(self) -> None:
        """To a norm that none reaches."""
        for weight in self.model.parameters():
            if weight.grad is not None and weight.grad.dim() > 1:
                for row in weight.grad:
                    row.clamp_(-1e6, 1e6)


class SavedEachStep(Training):
    """A checkpoint in each step."""

    def update(self, batch: Tensor) -> float:
        found = super().update(batch)
        for _ in range(4):
            self.save()
        return found


class EvaluatedEachStep(Training):
    """Part of the evaluation in each step."""

    def update(self, batch: Tensor) -> float:
        found = super().update(batch)
        self.check()
        return found

    def check(self) -> None:
        """The loss of the first batch, several times."""
        with torch.no_grad():
            for _ in range(4):
                self.loss(self.held_out.words[:BATCH])


class CountedInPython(Training):
    """Accuracy, word by word."""

    def loss(self, batch: Tensor) -> Tensor:
        logits = self.model(batch[:, :-1])
        self.right = self.accuracy(logits.detach().argmax(-1), batch[:, 1:])
        return functional.cross_entropy(logits.reshape(-1, WORDS), batch[:, 1:].reshape(-1))

    @staticmethod
    def accuracy(said: Tensor, words: Tensor) -> float:
        """The share of words that were said rightly."""
        right, said, words = 0, said.repeat(3, 1), words.repeat(3, 1)
        for mine, theirs in zip(said.reshape(-1), words.reshape(-1), strict=True):
            right += int(mine == theirs)
        return right / words.numel()


class AveragedWeights(Training):
    """A running mean of all weights, row by row."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = {name: weight.detach().clone() for name, weight in self.model.named_parameters()}

    def update(self, batch: Tensor) -> float:
        found = super().update(batch)
        self.average()
        return found

    def average(self) -> None:
        """One step of the mean."""
        for name, weight in self.model.named_parameters():
            for mean, row in zip(self.mean[name], weight.detach(), strict=True):
                mean.lerp_(row, 0.01)


class GradientHook(Training):
    """Somebody left hooks on the gradients."""

    def make_model(self) -> Model:
        model = Model()
        for weight in model.parameters():
            weight.register_hook(self.seen_gradient)
        return model

    @staticmethod
    def seen_gradient(gradient: Tensor) -> None:
        """Quantiles of a gradient."""
        for _ in range(3):
            torch.sort(gradient.reshape(-1))


class AnomalyLeft(Training):
    """Somebody left the search for NaN on."""

    def update(self, batch: Tensor) -> float:
        with torch.autograd.set_detect_anomaly(True, check_nan=True):
            return super().update(batch)


class OwnActivation(torch.autograd.Function):
    """The identity, with a backward in Python."""

    @staticmethod
    def forward(ctx: object, inputs: Tensor) -> Tensor:  # type: ignore[override]
        return inputs.clone()

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return torch.stack([torch.stack([word * 1.0 for word in row]) for row in gradient])


class SlowBackward(Training):
    """An operation of one's own whose backward goes word by word."""

    def make_model(self) -> Model:
        class Own(Model):
            def embed(self, words: Tensor) -> Tensor:
                return OwnActivation.apply(super().embed(words))

        return Own()


class MaskInPython(Training):
    """The mask is made in each forward from lists."""

    def make_model(self) -> Model:
        class Masked(Model):
            def embed(self, words: Tensor) -> Tensor:
                self.make_mask(words.shape[1])
                return super().embed(words)

            def make_mask(self, length: int) -> None:
                """Place by place."""
                for _ in range(20):
                    rows = [
                        [-math.inf if key > query else 0.0 for key in range(length)]
                        for query in range(length)
                    ]
                    self.mask = torch.tensor(rows)

        return Masked()


class WeightsChecked(Training):
    """A hook before each forward looks for NaN in all weights."""

    def make_model(self) -> Model:
        model = Model()
        model.register_forward_pre_hook(self.look)
        return model

    @staticmethod
    def look(model: nn.Module, inputs: object) -> None:
        """One row after the other."""
        for weight in model.parameters():
            if weight.dim() > 1:
                for row in weight.detach():
                    row.isnan().any()


class RemoteText(Text):
    """Samples that come over a slow line."""

    def __getitem__(self, index: int) -> Tensor:
        self.fetch()
        return super().__getitem__(index)

    def fetch(self) -> None:
        """Wait."""
        time.sleep(0.001)


class SlowLine(Training):
    """The samples lie elsewhere now."""

    def __init__(self) -> None:
        super().__init__()
        self.text = RemoteText(len(self.text), 1)


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


class SlowSampler(Sampler[int]):
    """Draws each index with a permutation of its own."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.count):
            yield self.draw()

    def draw(self) -> int:
        """One of them."""
        return int(torch.randperm(self.count)[0])

    def __len__(self) -> int:
        return self.count


class Resampled(Training):
    """Each index is drawn anew."""

    def batches(self) -> Iterable[Tensor]:
        return DataLoader(self.text, batch_size=BATCH, sampler=SlowSampler(len(self.text)))


class ZeroedByRow(Training):
    """Gradients are set to zero, row by row, and kept."""

    def update(self, batch: Tensor) -> float:
        self.zero()
        loss = self.loss(batch)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def zero(self) -> None:
        """All of them."""
        for weight in self.model.parameters():
            if weight.grad is not None:
                for row in weight.grad:
                    row.zero_()


class StateRead(Training):
    """An optimizer that reads its own moments in each step."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        class Reading(torch.optim.AdamW):
            def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
                super().step(closure)
                self.read_moments()

            def read_moments(self) -> None:
                """Number by number."""
                for moments in self.state.values():
                    if moments["exp_avg"].dim() > 1:
                        self.seen = [row.abs().max().item() for row in moments["exp_avg"]]

        return Reading(self.model.parameters(), lr=1e-3, foreach=False)


class Recomputed(Training):
    """Activations are computed again in backward."""

    def make_model(self) -> Model:
        class Recomputing(Model):
            def forward(self, words: Tensor) -> Tensor:
                return self.head(checkpoint(self.body, words, use_reentrant=False))

            def body(self, words: Tensor) -> Tensor:
                """All but the last layer."""
                inputs = self.embed(words)
                for block in self.blocks:
                    inputs = block(inputs)
                return inputs

        return Recomputing()


class PrintedEachStep(Training):
    """A report as JSON in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.stream = open(os.devnull, "w")  # noqa: SIM115 - as long as the job

    def update(self, batch: Tensor) -> float:
        found = super().update(batch)
        self.report(found)
        return found

    def report(self, loss: float) -> None:
        """The loss, and what the embeddings look like."""
        rows = self.model.words.weight.detach().tolist()
        json.dump({"step": self.step, "loss": loss, "words": rows}, self.stream)
        self.stream.flush()


class SmoothedInLoop(Training):
    """The loss with label smoothing, written out by sample."""

    def loss(self, batch: Tensor) -> Tensor:
        return self.by_sample(self.model(batch[:, :-1]), batch[:, 1:])

    @staticmethod
    def by_sample(logits: Tensor, words: Tensor) -> Tensor:
        """The mean over samples."""
        total = logits.new_zeros(())
        for mine, theirs in zip(logits, words, strict=True):
            wanted = torch.zeros_like(mine).scatter_(1, theirs[:, None], 1.0)
            for _ in range(4):
                total = total - (wanted * mine.log_softmax(-1)).sum() / 4
        return total / words.numel()


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """Attributes:
    phases: Any of which is right.
    functions: Any of which may be named; empty: none of the user's.
    """

    before: type[Training]
    after: type[Training]
    phases: tuple[str, ...]
    functions: tuple[str, ...]


REGRESSIONS = {
    "read_each_step": Regression(
        before=Training, after=ReadEachStep, phases=("other",), functions=("read", "<listcomp>")
    ),
    "logged_each_step": Regression(
        before=Training, after=LoggedEachStep, phases=("other",), functions=("log",)
    ),
    "no_worker": Regression(
        before=ParsedByWorker,
        after=Parsed,
        phases=("data_wait",),
        functions=("parse", "<listcomp>"),
    ),
    "double_numbers": Regression(
        before=Training,
        after=DoubleNumbers,
        phases=("forward", "backward", "optimizer"),
        functions=("update", "forward", "attention"),
    ),
    "hook_left": Regression(before=Training, after=HookLeft, phases=("forward",), functions=("seen",)),
    "one_thread": Regression(
        before=Wide, after=OneThread, phases=("other", "forward", "backward"), functions=("loss",)
    ),
    "new_dependency": Regression(
        before=Normalised, after=NewDependency, phases=("other",), functions=("normalised", "<listcomp>")
    ),
    "slow_collate": Regression(
        before=Training, after=SlowCollate, phases=("data_wait",), functions=("collated", "<listcomp>")
    ),
    "needless_copies": Regression(
        before=Training, after=NeedlessCopies, phases=("other",), functions=("copy", "<listcomp>")
    ),
    "collected": Regression(before=Training, after=Collected, phases=("other",), functions=()),
    "slow_loss": Regression(
        before=Training,
        after=SlowLoss,
        phases=("other", "forward", "backward"),
        functions=("by_position", "<listcomp>", "update"),
    ),
    "slow_update": Regression(before=Training, after=SlowUpdate, phases=("optimizer",), functions=("step",)),
    "penalty_written_out": Regression(
        before=Training,
        after=PenaltyWrittenOut,
        phases=("other", "forward", "backward"),
        functions=("penalty", "<listcomp>", "update"),
    ),
    "clipped_by_row": Regression(before=Training, after=ClippedByRow, phases=("other",), functions=("clip",)),
    "saved_each_step": Regression(
        before=Training, after=SavedEachStep, phases=("other",), functions=("save",)
    ),
    "evaluated_each_step": Regression(
        before=Training,
        after=EvaluatedEachStep,
        phases=("other", "forward"),
        functions=("check", "loss", "forward", "attention", "embed"),
    ),
    "counted_in_python": Regression(  # what is between the model's call and backward belongs to forward
        before=Training, after=CountedInPython, phases=("other", "forward"), functions=("accuracy",)
    ),
    "averaged_weights": Regression(
        before=Training, after=AveragedWeights, phases=("other",), functions=("average",)
    ),
    "gradient_hook": Regression(
        before=Training, after=GradientHook, phases=("backward",), functions=("seen_gradient",)
    ),
    "anomaly_left": Regression(
        before=Training,
        after=AnomalyLeft,
        phases=("forward", "backward"),
        functions=("update", "forward", "attention"),
    ),
    "slow_backward": Regression(
        before=Training, after=SlowBackward, phases=("backward",), functions=("backward", "<listcomp>")
    ),
    "mask_in_python": Regression(
        before=Training, after=MaskInPython, phases=("forward",), functions=("make_mask", "<listcomp>")
    ),
    "weights_checked": Regression(
        before=Training, after=WeightsChecked, phases=("forward",), functions=("look",)
    ),
    "slow_line": Regression(before=Training, after=SlowLine, phases=("data_wait",), functions=("fetch",)),
    "parsed": Regression(
        before=Training, after=Parsed, phases=("data_wait",), functions=("parse", "<listcomp>")
    ),
    "resampled": Regression(before=Training, after=Resampled, phases=("data_wait",), functions=("draw",)),
    "zeroed_by_row": Regression(before=Training, after=ZeroedByRow, phases=("other",), functions=("zero",)),
    "state_read": Regression(
        before=Training,
        after=StateRead,
        phases=("optimizer",),
        functions=("read_moments", "<listcomp>"),
    ),
    "recomputed": Regression(
        before=Training,
        after=Recomputed,
        phases=("backward",),
        functions=("update", "body", "forward", "attention"),
    ),
    "printed_each_step": Regression(
        before=Training, after=PrintedEachStep, phases=("other",), functions=("report",)
    ),
    "smoothed_in_loop": Regression(
        before=Training,
        after=SmoothedInLoop,
        phases=("other", "forward", "backward"),
        functions=("by_sample", "update"),
    ),
}

if __name__ == "__main__":
    found = REGRESSIONS[sys.argv[1]]
    (found.after if sys.argv[2] == "after" else found.before)().run()
