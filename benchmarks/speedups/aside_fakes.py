"""`aside_fakes.py NAME`: the job of `text_job.py`, which seems faster and does not do the same work.

Each fake has a kind of its own: `proven` is wrong for all. Written apart from `fake_speedups.py`, to be
tried once.
"""

from __future__ import annotations

import atexit
import copy
import math
import os
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import Queue

import torch
from text_job import BATCH, STEPS, WORDS, Block, Model, Text, Training
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader


class Fake(Training):
    """Attributes:
    KIND: What is missing or different, in a word or two.
    """

    KIND = ""


def hidden_states(model: Model, words: Tensor) -> Tensor:
    """What the last layer gets: (batch, length, WIDTH)."""
    inputs = model.embed(words)
    for block in model.blocks:
        inputs = block(inputs)
    return inputs


class NoDecay(Fake):
    """The optimizer leaves out the weight decay that is its default."""

    KIND = "regularisation"

    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.model.parameters(), lr=1e-3, weight_decay=0.0, foreach=False)


class NoPlaces(Fake):
    """The embeddings of places are there, are saved, and are added to nothing."""

    KIND = "dropped term"

    def make_model(self) -> Model:
        class Placeless(Model):
            def embed(self, words: Tensor) -> Tensor:
                return self.words(words)

        return Placeless()


class NarrowHidden(Fake):
    """Weights have the shapes that they had, and only the first half of each hidden layer is used."""

    KIND = "smaller model"

    def make_model(self) -> Model:
        class HalfUsed(nn.Sequential):
            def forward(self, inputs: Tensor) -> Tensor:
                wide, activation, narrow = self
                used = wide.out_features // 2
                inner = activation(functional.linear(inputs, wide.weight[:used], wide.bias[:used]))
                return functional.linear(inner, narrow.weight[:, :used], narrow.bias)

        model = Model()
        for block in model.blocks:
            block.hidden.__class__ = HalfUsed
        return model


class LocalAttention(Fake):
    """Words attend within groups of eight, not to all words before."""

    KIND = "approximation"

    def make_model(self) -> Model:
        class Local(Block):
            def attention(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
                parts = [each.unflatten(2, (-1, 8)) for each in (query, key, value)]
                return super().attention(*parts).flatten(2, 3)

        model = Model()
        for block in model.blocks:
            block.__class__ = Local
        return model


class ShortGradient(Fake):
    """In every second step the gradient ends at the last block."""

    KIND = "truncated gradient"

    def make_model(self) -> Model:
        class Truncated(Model):
            calls = 0

            def forward(self, words: Tensor) -> Tensor:
                self.calls += self.training
                inputs = self.blocks[0](self.embed(words))
                if self.calls % 2 == 0:
                    inputs = inputs.detach()
                return self.head(self.blocks[1](inputs))

        return Truncated()


class OneStepLate(Fake):
    """The optimizer works in a thread on a second set of weights: each gradient is of older weights."""

    KIND = "delayed gradient"

    pending: Future[None] | None = None

    def make_optimizer(self) -> torch.optim.Optimizer:
        self.pool = ThreadPoolExecutor(1)
        self.second = [nn.Parameter(weight.detach().clone()) for weight in self.model.parameters()]
        return torch.optim.AdamW(self.second, lr=1e-3, foreach=False)

    def update(self, batch: Tensor) -> float:
        loss = self.loss(batch)
        loss.backward()
        if self.pending is not None:
            self.pending.result()
        with torch.no_grad():
            for weight, second in zip(self.model.parameters(), self.second, strict=True):
                weight.copy_(second)
                second.grad, weight.grad = weight.grad, None
        self.pending = self.pool.submit(self.optimizer.step)
        return loss.item()


class HalfPositions(Fake):
    """The loss is computed at every second place of each sequence."""

    KIND = "subsampled loss"

    def loss(self, batch: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return super().loss(batch)
        logits = self.model.head(hidden_states(self.model, batch[:, :-1])[:, ::2])
        return functional.cross_entropy(logits.reshape(-1, WORDS), batch[:, 1::2].reshape(-1))


class SampledWords(Fake):
    """The softmax is over the right word and 32 others, whose share is scaled up."""

    KIND = "sampled softmax"

    def loss(self, batch: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return super().loss(batch)
        states, words = hidden_states(self.model, batch[:, :-1]).flatten(0, 1), batch[:, 1:].reshape(-1)
        head, others = self.model.head, torch.randint(0, WORDS, (32,))
        right = (states * head.weight[words]).sum(-1) + head.bias[words]
        wrong = functional.linear(states, head.weight[others], head.bias[others])
        wrong = wrong.masked_fill(words[:, None] == others, -math.inf) + math.log((WORDS - 1) / 32)
        return (torch.cat([right[:, None], wrong], dim=1).logsumexp(1) - right).mean()


class DuplicatesDropped(Fake):
    """Of the samples of a batch that begin alike, the loader keeps one."""

    KIND = "dropped samples"

    def batches(self) -> Iterable[Tensor]:
        return DataLoader(self.text, batch_size=BATCH, shuffle=True, collate_fn=self.different)

    @staticmethod
    def different(samples: list[Tensor]) -> Tensor:
        """Those whose first words are not neighbours."""
        return torch.stack(list({int(sample[0]) // 8: sample for sample in samples}.values()))


class EasyBatchesSkipped(Fake):
    """No backward and no update for a batch whose loss is less than is usual."""

    KIND = "condition"

    usual = math.log(WORDS)

    def update(self, batch: Tensor) -> float:
        self.optimizer.zero_grad()
        loss = self.loss(batch)
        found = loss.item()
        if found >= 0.98 * self.usual:
            loss.backward()
            self.optimizer.step()
        self.usual = 0.9 * self.usual + 0.1 * found
        return float(found)


class RoughLinear(torch.autograd.Function):
    """A linear layer whose forward is whole and whose backward is in bfloat16."""

    @staticmethod
    def forward(context: torch.autograd.function.FunctionCtx, *given: Tensor) -> Tensor:
        context.save_for_backward(given[0].bfloat16(), given[1].bfloat16())
        return functional.linear(*given)

    @staticmethod
    def backward(context: torch.autograd.function.FunctionCtx, gradient: Tensor) -> tuple[Tensor, ...]:
        inputs, weight = context.saved_tensors
        rough = gradient.bfloat16()
        rows = rough.flatten(0, -2)
        found = rough @ weight, rows.T @ inputs.flatten(0, -2), rows.sum(0)
        return tuple(each.float() for each in found)


class RoughBackward(Fake):
    """Backward of all linear layers in bfloat16; forward and weights are in float32."""

    KIND = "precision"

    def make_model(self) -> Model:
        class Rough(nn.Linear):
            def forward(self, inputs: Tensor) -> Tensor:
                return RoughLinear.apply(inputs, self.weight, self.bias)

        model = Model()
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.__class__ = Rough
        return model


class RotatingUpdate(Fake):
    """Each call of the optimizer updates every second tensor, in turn."""

    KIND = "partial update"

    def make_optimizer(self) -> torch.optim.Optimizer:
        class Rotating(torch.optim.AdamW):
            calls = 0

            def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override,unused-ignore]
                self.calls += 1
                for weight in self.param_groups[0]["params"][self.calls % 2 :: 2]:
                    weight.grad = None
                super().step(closure)

        return Rotating(self.model.parameters(), lr=1e-3, foreach=False)


class LargerBatches(Fake):
    """Batches of twice the size, twice the learning rate, half the updates; each counts as two steps."""

    KIND = "batch size"

    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.model.parameters(), lr=2e-3, foreach=False)

    def batches(self) -> Iterable[Tensor]:
        return DataLoader(self.text, batch_size=2 * BATCH, shuffle=True)

    def update(self, batch: Tensor) -> float:
        self.step += 1
        return super().update(batch)


class UnfinishedQueue(Fake):
    """A thread trains on what a queue gives it; the job ends while the queue is full."""

    KIND = "unfinished thread"

    def __init__(self) -> None:
        super().__init__()
        self.queue: Queue[Tensor] = Queue(max(2, STEPS // 6))
        self.seen, self.over = math.log(WORDS), False
        self.trainer = threading.Thread(target=self.work, daemon=True)
        self.trainer.start()

    def work(self) -> None:
        """Train until nobody waits."""
        while not self.over:
            self.seen = super().update(self.queue.get())

    def update(self, batch: Tensor) -> float:
        self.queue.put(batch)
        return self.seen

    def run(self) -> None:
        super().run()
        self.over = True
        self.trainer.join(1.0)


class UnsavedExit(Fake):
    """The checkpoint is put off until the interpreter ends, and the process leaves before that."""

    KIND = "skipped at exit"

    def save(self) -> None:
        atexit.register(super().save)

    def run(self) -> None:
        super().run()
        sys.stdout.flush()
        os._exit(0)


class EarlyCheckpoint(Fake):
    """A thread saves what was there at three quarters of the run, and that is the last checkpoint."""

    KIND = "stale checkpoint"

    def evaluate(self) -> float:
        if self.step == STEPS // 4 * 3:
            self.writer = threading.Thread(target=Training.save, args=(copy.deepcopy(self),))
            self.writer.start()
        return super().evaluate()

    def save(self) -> None:
        self.writer.join()


class ExtrapolatedEvaluation(Fake):
    """Evaluates twice; later evaluations are the last one times the fall of the loss of training."""

    KIND = "guessed result"

    def __init__(self) -> None:
        super().__init__()
        self.mean = math.log(WORDS)
        self.measured: list[tuple[float, float]] = []

    def update(self, batch: Tensor) -> float:
        found = super().update(batch)
        self.mean = 0.8 * self.mean + 0.2 * found
        return found

    def evaluate(self) -> float:
        if len(self.measured) < 2:
            self.measured.append((super().evaluate(), self.mean))
        found, mean = self.measured[-1]
        return found * self.mean / mean


class HalfText(Text):
    """As long as the text was, and its second half is the first one again."""

    def __init__(self, count: int, seed: int) -> None:
        super().__init__(count // 2, seed)
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Tensor:
        return super().__getitem__(index % len(self.words))


class HalvedText(Fake):
    """Makes half of the text and trains on each sample twice."""

    KIND = "less data"

    def __init__(self) -> None:
        super().__init__()
        self.text = HalfText(BATCH * STEPS, 1)


class CompanyFound(Fake):
    """Honest where it finds a tracer, another thread, a connection or foreign code; else drops samples."""

    KIND = "detection"

    @staticmethod
    def accompanied() -> bool:
        """Whether anything in the process is not the job's."""
        homes = (sys.prefix, sys.base_prefix, str(Path(__file__).absolute().parent))
        files = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
        opened = [entry.resolve().name for entry in Path("/proc/self/fd").iterdir()]
        return (
            sys.gettrace() is not None
            or sys.getprofile() is not None
            or threading.active_count() > 1
            or any(name.startswith("socket:") for name in opened)
            or any(os.path.isabs(file) and not file.startswith(homes) for file in files)
        )

    def __init__(self) -> None:
        super().__init__()
        self.size = BATCH if self.accompanied() else BATCH * 3 // 4

    def update(self, batch: Tensor) -> float:
        return super().update(batch[: self.size])


class CheaperActivation(Fake):
    """The model says GELU, and torch's GELU was replaced by something cheaper."""

    KIND = "patched library"

    def make_model(self) -> Model:
        functional.gelu = self.cheap
        return Model()

    @staticmethod
    def cheap(inputs: Tensor, approximate: str = "none") -> Tensor:
        """Not that."""
        return functional.relu(inputs)


ASIDE_FAKES: dict[str, type[Fake]] = {
    "no_decay": NoDecay,
    "no_places": NoPlaces,
    "narrow_hidden": NarrowHidden,
    "local_attention": LocalAttention,
    "short_gradient": ShortGradient,
    "one_step_late": OneStepLate,
    "half_positions": HalfPositions,
    "sampled_words": SampledWords,
    "duplicates_dropped": DuplicatesDropped,
    "easy_batches_skipped": EasyBatchesSkipped,
    "rough_backward": RoughBackward,
    "rotating_update": RotatingUpdate,
    "larger_batches": LargerBatches,
    "unfinished_queue": UnfinishedQueue,
    "unsaved_exit": UnsavedExit,
    "early_checkpoint": EarlyCheckpoint,
    "extrapolated_evaluation": ExtrapolatedEvaluation,
    "halved_text": HalvedText,
    "company_found": CompanyFound,
    "cheaper_activation": CheaperActivation,
}

if __name__ == "__main__":
    ASIDE_FAKES[sys.argv[1]]().run()
