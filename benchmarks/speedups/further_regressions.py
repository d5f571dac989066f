"""Further regressions: classes that `regressions.py` starts. Each is slower in one place that is known."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator

import torch
from text_job import BATCH, WORDS, Model, Text, Training
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Sampler


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
