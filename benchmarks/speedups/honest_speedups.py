"""`honest_speedups.py NAME before|after`: the job of `text_job.py` with something slow in it, and without.

Each pair trains on the same samples in the same order and comes to the same weights, or to weights that
differ by the order of additions. `proven` is right for all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import torch
from text_job import BATCH, EVALUATED, WORDS, Block, Model, Text, Training
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader


class SlowText(Text):
    """Takes every word apart, and checks it."""

    def __getitem__(self, index: int) -> Tensor:
        spelt = [bin(int(word)).replace("0b", "").zfill(8) for word in self.words[index]]
        return torch.tensor([int("".join(digit for digit in word), 2) for word in spelt])


class SlowSamples(Training):
    """A slow data set, in the process that trains."""

    def __init__(self) -> None:
        super().__init__()
        self.text = SlowText(len(self.text), 1)


class LoaderWorker(SlowSamples):
    """The slow data set in a worker."""

    def batches(self) -> Iterable[Tensor]:
        return DataLoader(self.text, batch_size=BATCH, shuffle=True, num_workers=1)


class AnomalyChecked(Training):
    """Somebody left the search for NaN on."""

    def update(self, batch: Tensor) -> float:
        with torch.autograd.set_detect_anomaly(True, check_nan=True):
            return super().update(batch)


class Recomputed(Training):
    """Activations are computed again in backward."""

    def make_model(self) -> Model:
        class Recomputing(Model):
            def forward(self, words: Tensor) -> Tensor:
                inputs = self.embed(words)
                for block in self.blocks:
                    inputs = checkpoint(block, inputs, use_reentrant=False)
                return self.head(inputs)

        return Recomputing()


class FusedBlock(Block):
    """Attention in one kernel."""

    def attention(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)


class FusedAttention(Training):
    """Attention in one kernel."""

    def make_model(self) -> Model:
        model = Model()
        for block in model.blocks:
            block.__class__ = FusedBlock
        return model


class FusedUpdate(Training):
    """The optimizer in one kernel."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)


class CountedBadly(Training):
    """Logs norms and histograms of weights and gradients in every step, and shows them to nobody."""

    def update(self, batch: Tensor) -> float:
        found = super().update(batch)
        self.seen = [
            (
                weight.detach().norm().item(),
                torch.histc(weight.detach(), 64).tolist(),
                weight.grad.norm().item(),
            )
            for weight in self.model.parameters()
            if weight.grad is not None
        ]
        return found


class EvaluatedWithGraph(Training):
    """Evaluation as if it were training: with a graph, and often."""

    def evaluate(self) -> float:
        self.model.eval()
        found = [self.loss(batch).item() for batch in DataLoader(self.held_out, batch_size=BATCH)]
        self.model.train()
        return sum(found) / len(found)


class OftenEvaluated(EvaluatedWithGraph):
    """The same, every 20 steps."""

    def update(self, batch: Tensor) -> float:
        found = super().update(batch)
        if self.step % 20 == 0:
            self.evaluate()
        return found


class EvaluatedInLargeBatches(OftenEvaluated):
    """The same samples in two batches, without a graph."""

    def evaluate(self) -> float:
        self.model.eval()
        with torch.inference_mode():
            batches = DataLoader(self.held_out, batch_size=EVALUATED // 2)
            found = [self.loss(batch).item() for batch in batches]
        self.model.train()
        return sum(found) / len(found)


class UnusedOutputs(Training):
    """A second head whose output is used by nobody."""

    def loss(self, batch: Tensor) -> Tensor:
        with torch.no_grad():
            hidden = self.model.blocks[0](self.model.embed(batch[:, :-1]))
            functional.softmax(hidden @ self.model.words.weight.T, dim=-1).reshape(-1, WORDS)
        return super().loss(batch)


class TwoThreads(Training):
    """Both cores."""

    threads = 2


class OneOfTwoHeads(Training):
    """Attention head by head, in a loop."""

    def make_model(self) -> Model:
        class Looped(Block):
            def attention(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
                each = super().attention
                heads = [
                    each(query[i : i + 1, j], key[i : i + 1, j], value[i : i + 1, j])
                    for i in range(query.shape[0])
                    for j in range(query.shape[1])
                ]
                return torch.cat(heads).reshape(query.shape)

        model = Model()
        for block in model.blocks:
            block.__class__ = Looped
        return model


PAIRS = {
    "loader_worker": (SlowSamples, LoaderWorker),
    "faster_samples": (SlowSamples, Training),
    "no_anomaly_checks": (AnomalyChecked, Training),
    "no_recomputing": (Recomputed, Training),
    "fused_attention": (Training, FusedAttention),
    "fused_update": (Training, FusedUpdate),
    "less_logging": (CountedBadly, Training),
    "larger_evaluation": (OftenEvaluated, EvaluatedInLargeBatches),
    "no_unused_outputs": (UnusedOutputs, Training),
    "two_threads": (Training, TwoThreads),
    "heads_at_once": (OneOfTwoHeads, Training),
}

if __name__ == "__main__":
    PAIRS[sys.argv[1]][sys.argv[2] == "after"]().run()
