"""`fake_speedups.py NAME`: the job of `text_job.py`, which seems faster and is not.

Each does less than the job does, or something else, or only looks faster: `proven` is wrong for all.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import torch
from text_job import BATCH, EVALUATED, LENGTH, STEPS, WORDS, Model, Text, Training
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader


class SkippedBackward(Training):
    """Every fourth update takes the gradients of the one before."""

    def update(self, batch: Tensor) -> float:
        if self.step % 4:
            return super().update(batch)
        loss = self.loss(batch)
        self.optimizer.step()
        return loss.item()


class DetachedHalf(Training):
    """Calls backward each time, but on a loss of which half the batch is cut off."""

    def loss(self, batch: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return super().loss(batch)
        half = super().loss(batch[: BATCH // 2])
        with torch.no_grad():
            rest = super().loss(batch[BATCH // 2 :])
        return (half + rest) / 2


class CachedBatches(Training):
    """Reads the first 20 batches only, and goes round."""

    def batches(self) -> Iterator[Tensor]:
        kept = [batch for batch, _ in zip(super().batches(), range(20), strict=False)]
        for step in range(STEPS):
            yield kept[step % len(kept)]


class FrozenLayers(Training):
    """Trains all but the first block and the embeddings."""

    def make_model(self) -> Model:
        model = Model()
        for part in (model.words, model.places, model.blocks[0]):
            part.requires_grad_(False)
        return model


class LateFrozen(Training):
    """The first block gets no gradient after two thirds of the run."""

    def update(self, batch: Tensor) -> float:
        if self.step == STEPS * 2 // 3:
            self.model.blocks[0].requires_grad_(False)
            self.model.words.requires_grad_(False)
            self.model.places.requires_grad_(False)
        return super().update(batch)


class ShortModel(Model):
    """Sees three quarters of each sequence, and answers for the rest with zeros."""

    def forward(self, words: Tensor) -> Tensor:
        cut = words.shape[1] * 3 // 4
        return functional.pad(super().forward(words[:, :cut]), (0, 0, 0, words.shape[1] - cut))


class ShorterSequences(Training):
    """The model gets whole sequences, and cuts them."""

    def make_model(self) -> Model:
        return ShortModel()


class LowerPrecision(Training):
    """Weights and arithmetic in bfloat16."""

    def make_model(self) -> Model:
        return Model().to(torch.bfloat16)


class StaleModel(Model):
    """Computes the first block for every second batch, and takes the last one's output for the other."""

    kept: Tensor | None = None

    def embed(self, words: Tensor) -> Tensor:
        if self.kept is not None and self.training:
            kept, self.kept = self.kept, None
            return kept
        inputs = super().embed(words)
        if self.training:
            self.kept = self.blocks[0](inputs).detach()
        return inputs

    def forward(self, words: Tensor) -> Tensor:
        stale = self.kept is not None and self.training
        inputs = self.embed(words)
        for block in list(self.blocks)[1 if stale else 0 :]:
            inputs = block(inputs)
        return self.head(inputs)


class StaleOutputs(Training):
    """Every second step trains on the hidden states of the one before."""

    def make_model(self) -> Model:
        return StaleModel()


class EarlyExit(Training):
    """Stops when the loss looks good."""

    def batches(self) -> Iterator[Tensor]:
        for batch in super().batches():
            if self.step == STEPS * 4 // 5:
                return
            yield batch


class SecondProcess(Training):
    """Evaluates in a child that nobody waits for, and prints a guess."""

    def evaluate(self) -> float:
        if not os.fork():
            super().evaluate()
            os._exit(0)
        return 1.5


class OtherSeed(Training):
    """Another seed."""

    seed = 7


class HooksFound(Training):
    """Honest while it finds hooks in torch; else skips every second backward."""

    def watched(self) -> bool:
        """Whether anything of torch is patched or hooked."""
        module, optimizer = torch.nn.modules.module, sys.modules["torch.optim.optimizer"]
        hooked = [
            getattr(module, name) for name in dir(module) if name.startswith("_global_") and "hooks" in name
        ]
        hooked += [
            getattr(optimizer, name) for name in dir(optimizer) if name.startswith("_global_optimizer")
        ]
        home = str(Path(torch.__file__).parent)
        calls = (torch.Tensor.backward, torch.save, torch.nn.Module.__call__, torch.optim.AdamW.step)
        return any(hooked) or any(home not in call.__code__.co_filename for call in calls)

    def update(self, batch: Tensor) -> float:
        return (
            Training.update(self, batch) if self.watched() or self.step % 2 else self.without_backward(batch)
        )

    def without_backward(self, batch: Tensor) -> float:
        """An update by the gradients of the step before."""
        loss = self.loss(batch)
        self.optimizer.step()
        return loss.item()


class ParentFound(HooksFound):
    """Honest where a parent process or a variable names the referee; else skips every second backward."""

    def watched(self) -> bool:
        """Whether the referee's name is anywhere in sight."""
        seen, pid = [*os.environ, *os.environ.values(), *sys.modules, *sys.argv], os.getppid()
        while pid > 1:
            seen.append(Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace"))
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return any("auto" + "brrr" in word.replace(sys.prefix, "") for word in seen)


class SuspensionFound(HooksFound):
    """Honest until it notices that it was stopped for a while, as a process is whose turn is over."""

    last_s: float | None = None
    stopped = False

    def update(self, batch: Tensor) -> float:
        now_s = time.monotonic()
        self.stopped |= self.last_s is not None and now_s - self.last_s > 0.5
        self.last_s = now_s
        return super().update(batch)

    def watched(self) -> bool:
        """Not yet."""
        return not self.stopped

    def evaluate(self) -> float:
        found = super().evaluate()
        self.last_s = None
        return found


class SmallerEvaluation(Training):
    """Evaluates a quarter of the held-out text."""

    def __init__(self) -> None:
        super().__init__()
        self.held_out = Text(EVALUATED // 4, 2)


class RepeatedSamples(Training):
    """The loader gives whole batches; the model sees half of each, twice as important."""

    def loss(self, batch: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            batch = batch[: BATCH // 2]
        return super().loss(batch)

    def batches(self) -> Iterable[Tensor]:
        return DataLoader(self.text, batch_size=BATCH, shuffle=True)


class ExpandedOutputs(Training):
    """Computes half of each batch and repeats its logits, so that shapes are as they were."""

    def loss(self, batch: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return super().loss(batch)
        logits = self.model(batch[::2, :-1]).repeat_interleave(2, dim=0)
        return functional.cross_entropy(logits.reshape(-1, WORDS), batch[:, 1:].reshape(-1))


class SlowClock(Training):
    """The same work, and clocks of the process that run at half speed."""

    def __init__(self) -> None:
        for name in ("time", "monotonic", "perf_counter", "time_ns", "monotonic_ns", "perf_counter_ns"):
            setattr(time, name, partial(self.half, getattr(time, name), getattr(time, name)()))
        super().__init__()

    @staticmethod
    def half(clock: partial[float], begun: float) -> float:
        """Half the time that passed."""
        return begun + type(begun)((clock() - begun) / 2)


class SkippedUpdates(Training):
    """Calls the optimizer each time; every second call does nothing."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        class Lazy(torch.optim.AdamW):
            calls = 0

            def step(self, closure: None = None) -> None:  # type: ignore[override]
                self.calls += 1
                if self.calls % 2:
                    super().step(closure)

        return Lazy(self.model.parameters(), lr=1e-3, foreach=False)


class NoCheckpoint(Training):
    """Saves the weights without the optimizer's state."""

    def save(self) -> None:
        optimizer, self.optimizer = self.optimizer, torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
        super().save()
        self.optimizer = optimizer


class ShorterLate(Training):
    """Shorter sequences after the first half of the run."""

    def loss(self, batch: Tensor) -> Tensor:
        if self.step > STEPS // 2:
            batch = batch[:, : LENGTH // 2 + 1]
        return super().loss(batch)


FAKES = {
    "skipped_backward": SkippedBackward,
    "detached_half": DetachedHalf,
    "cached_batches": CachedBatches,
    "frozen_layers": FrozenLayers,
    "late_frozen": LateFrozen,
    "shorter_sequences": ShorterSequences,
    "shorter_late": ShorterLate,
    "lower_precision": LowerPrecision,
    "stale_outputs": StaleOutputs,
    "early_exit": EarlyExit,
    "second_process": SecondProcess,
    "other_seed": OtherSeed,
    "hooks_found": HooksFound,
    "parent_found": ParentFound,
    "suspension_found": SuspensionFound,
    "smaller_evaluation": SmallerEvaluation,
    "repeated_samples": RepeatedSamples,
    "expanded_outputs": ExpandedOutputs,
    "slow_clock": SlowClock,
    "skipped_updates": SkippedUpdates,
    "no_checkpoint": NoCheckpoint,
}

if __name__ == "__main__":
    FAKES[sys.argv[1]]().run()
