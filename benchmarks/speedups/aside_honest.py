"""`aside_honest.py NAME before|after`: the job of `text_job.py` before and after a change that is no cheat.

Both sides of a pair train on the same samples in the same order and come to the same weights, or to weights
that differ by rounding. `proven` is right for all that are faster. Written apart from `honest_speedups.py`,
to be tried once.
"""

from __future__ import annotations

import copy
import gc
import math
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from queue import Queue

import torch
from text_job import BATCH, HEADS, LENGTH, STEPS, WIDTH, WORDS, Block, Model, Text, Training
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, RandomSampler


def with_blocks(kind: type[Block]) -> Model:
    """The model, its blocks of another class with the same weights."""
    model = Model()
    for block in model.blocks:
        block.__class__ = kind
    return model


class ZeroedInPlace(Training):
    """Gradients stay where they are and are set to zero, one after the other."""

    def update(self, batch: Tensor) -> float:
        self.optimizer.zero_grad(set_to_none=False)
        loss = self.loss(batch)
        loss.backward()
        self.optimizer.step()
        return loss.item()


class FlatGradients(Training):
    """Gradients are views of one tensor, which is set to zero at once."""

    def __init__(self) -> None:
        super().__init__()
        weights = list(self.model.parameters())
        self.flat = torch.zeros(sum(weight.numel() for weight in weights))
        parts = self.flat.split([weight.numel() for weight in weights])
        for weight, part in zip(weights, parts, strict=True):
            weight.grad = part.view_as(weight)

    def update(self, batch: Tensor) -> float:
        self.flat.zero_()
        loss = self.loss(batch)
        loss.backward()
        self.optimizer.step()
        return loss.item()


class KeptMask(Block):
    """The mask is made once, and scores are masked in place."""

    later = torch.ones((LENGTH, LENGTH), dtype=torch.bool).triu(1)

    def attention(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        score = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        return score.masked_fill_(self.later, -math.inf).softmax(-1) @ value


class MaskKept(Training):
    """One mask for all steps."""

    def make_model(self) -> Model:
        return with_blocks(KeptMask)


class AddedMask(Block):
    """Scores are scaled and masked by the kernel that multiplies."""

    mask = torch.full((LENGTH, LENGTH), -math.inf).triu(1)

    def attention(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scale = 1 / math.sqrt(query.shape[-1])
        rows, columns = query.flatten(0, 1), key.flatten(0, 1).transpose(1, 2)
        score = torch.baddbmm(self.mask, rows, columns, alpha=scale).softmax(-1)
        return (score @ value.flatten(0, 1)).view(query.shape)


class MaskAddedInProduct(Training):
    """Three operations of the attention in one."""

    def make_model(self) -> Model:
        return with_blocks(AddedMask)


class ThreeProjections(Block):
    """Queries, keys and values by a linear layer each, and each made contiguous."""

    def forward(self, inputs: Tensor) -> Tensor:
        normal, shape = self.first(inputs), (*inputs.shape[:2], HEADS, WIDTH // HEADS)
        parts = zip(self.wide.weight.split(WIDTH), self.wide.bias.split(WIDTH), strict=True)
        each = [
            functional.linear(normal, *part).reshape(shape).transpose(1, 2).contiguous() for part in parts
        ]
        inputs = inputs + self.mixed(self.attention(*each).transpose(1, 2).reshape(inputs.shape))
        return inputs + self.hidden(self.second(inputs))


class ProjectedApart(Training):
    """Three linear layers where one would do."""

    def make_model(self) -> Model:
        return with_blocks(ThreeProjections)


class GroupedUpdate(Training):
    """The optimizer goes over all tensors in one call for each operation."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.model.parameters(), lr=1e-3, foreach=True)


class EvaluatedFromTensor(Training):
    """Evaluation cuts its batches from a tensor, in inference mode; no loader is made for it."""

    def evaluate(self) -> float:
        self.model.eval()
        with torch.inference_mode():
            losses = torch.stack([self.loss(batch) for batch in self.held_out.words.split(BATCH)])
        self.model.train()
        return losses.mean().item()


class IndexedText(Text):
    """Gives a batch by one indexing."""

    def __getitems__(self, indices: list[int]) -> Tensor:
        return self.words[indices]


class BatchesIndexed(Training):
    """The loader asks for a whole batch and puts nothing together."""

    def __init__(self) -> None:
        super().__init__()
        self.text = IndexedText(BATCH * STEPS, 1)

    def batches(self) -> Iterable[Tensor]:
        return DataLoader(self.text, batch_size=BATCH, shuffle=True, collate_fn=self.whole)

    @staticmethod
    def whole(batch: Tensor) -> Tensor:
        """As it came."""
        return batch


class OrderDrawnOnce(Training):
    """No loader: the text is put in the loader's order once and cut into batches."""

    def batches(self) -> Iterator[Tensor]:
        torch.empty((), dtype=torch.int64).random_()  # the loader draws a seed for workers first
        order = torch.tensor(list(RandomSampler(self.text)))
        yield from self.text.words[order].split(BATCH)


class Waiting(Training):
    """Each batch comes over a slow line."""

    def batches(self) -> Iterable[Tensor]:
        return DataLoader(self.text, batch_size=BATCH, shuffle=True, collate_fn=self.fetched)

    @staticmethod
    def fetched(samples: list[Tensor]) -> Tensor:
        """Wait for it."""
        time.sleep(0.004)
        return torch.stack(samples)


class Prefetched(Waiting):
    """A thread waits, four batches ahead; their order is the same."""

    def batches(self) -> Iterator[Tensor]:
        ready: Queue[Tensor | None] = Queue(4)
        loader = super().batches()

        def fill() -> None:
            for batch in loader:
                ready.put(batch)
            ready.put(None)

        filler = threading.Thread(target=fill, daemon=True)
        filler.start()
        while (batch := ready.get()) is not None:
            yield batch
        filler.join()


class LossReadRarely(Training):
    """The loss stays a tensor until it is printed."""

    def update(self, batch: Tensor) -> float:
        self.optimizer.zero_grad()
        loss = self.loss(batch)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class SavedOften(Training):
    """A checkpoint at each evaluation, to a slow disk, which training waits for."""

    def evaluate(self) -> float:
        self.save()
        return super().evaluate()

    def save(self) -> None:
        time.sleep(0.15)
        super().save()


class SavedAside(SavedOften):
    """The same checkpoints, of a copy, written by a thread; the job ends when all are written."""

    writer: threading.Thread | None = None

    def evaluate(self) -> float:
        if self.writer is not None:
            self.writer.join()
        taken = copy.copy(self)
        taken.model = copy.deepcopy(self.model)
        taken.optimizer = taken.make_optimizer()
        taken.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))
        self.writer = threading.Thread(target=taken.save)
        self.writer.start()
        return Training.evaluate(self)

    def run(self) -> None:
        super().run()
        if self.writer is not None:
            self.writer.join()


class CopiedEachStep(Training):
    """Keeps a copy of the model and of the batch from before each step, which nobody asks for."""

    def update(self, batch: Tensor) -> float:
        self.before = copy.deepcopy((self.model, batch))
        return super().update(copy.deepcopy(batch))


class WrittenNorm(nn.LayerNorm):
    """The formula of layer normalisation, operation by operation."""

    def forward(self, inputs: Tensor) -> Tensor:
        centred = inputs - inputs.mean(-1, keepdim=True)
        variance = centred.pow(2).mean(-1, keepdim=True)
        return centred / torch.sqrt(variance + self.eps) * self.weight + self.bias


class NormWrittenOut(Training):
    """Layer normalisation in eight operations."""

    def make_model(self) -> Model:
        model = Model()
        for block in model.blocks:
            block.first.__class__ = block.second.__class__ = WrittenNorm
        return model


class LossWrittenOut(Training):
    """Cross-entropy as a product with vectors of zeros and a one."""

    def loss(self, batch: Tensor) -> Tensor:
        logits = self.model(batch[:, :-1]).reshape(-1, WORDS)
        wanted = functional.one_hot(batch[:, 1:].reshape(-1), WORDS).to(logits.dtype)
        return -(wanted * logits.log_softmax(-1)).sum(-1).mean()


class GarbageSearched(Training):
    """Looks for garbage after every fourth step, among all that was ever imported."""

    def update(self, batch: Tensor) -> float:
        found = super().update(batch)
        if self.step % 4 == 0:
            gc.collect()
        return found


class GarbageFrozen(GarbageSearched):
    """The same, but what was there before training is not looked at again."""

    def run(self) -> None:
        gc.collect()
        gc.freeze()
        super().run()


class EmbeddingMultiplied(Training):
    """Embeddings as a product with vectors of zeros and a one."""

    def make_model(self) -> Model:
        class Multiplied(Model):
            def embed(self, words: Tensor) -> Tensor:
                chosen = functional.one_hot(words, WORDS).to(self.words.weight.dtype)
                return chosen @ self.words.weight + self.places.weight[: words.shape[1]]

        return Multiplied()


class PartsOfBatches(Training):
    """Each batch in four parts, whose gradients are added up before the update."""

    def update(self, batch: Tensor) -> float:
        self.optimizer.zero_grad()
        total = 0.0
        for part in batch.split(BATCH // 4):
            loss = self.loss(part) / 4
            loss.backward()
            total += loss.item()
        self.optimizer.step()
        return total


class GradientsReturned(Training):
    """Gradients are asked for as a tuple, and nothing is added up in the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = list(self.model.parameters())

    def update(self, batch: Tensor) -> float:
        loss = self.loss(batch)
        for weight, gradient in zip(self.weights, torch.autograd.grad(loss, self.weights), strict=True):
            weight.grad = gradient
        self.optimizer.step()
        return loss.item()


ASIDE_HONEST: dict[str, tuple[type[Training], type[Training]]] = {
    "gradients_set_to_none": (ZeroedInPlace, Training),
    "flat_gradients": (ZeroedInPlace, FlatGradients),
    "mask_kept": (Training, MaskKept),
    "mask_added_in_product": (Training, MaskAddedInProduct),
    "projected_at_once": (ProjectedApart, Training),
    "grouped_update": (Training, GroupedUpdate),
    "evaluated_from_tensor": (Training, EvaluatedFromTensor),
    "batches_indexed": (Training, BatchesIndexed),
    "order_drawn_once": (Training, OrderDrawnOnce),
    "prefetched": (Waiting, Prefetched),
    "loss_read_rarely": (Training, LossReadRarely),
    "saved_aside": (SavedOften, SavedAside),
    "no_copies_each_step": (CopiedEachStep, Training),
    "norm_at_once": (NormWrittenOut, Training),
    "loss_at_once": (LossWrittenOut, Training),
    "garbage_frozen": (GarbageSearched, GarbageFrozen),
    "embedding_looked_up": (EmbeddingMultiplied, Training),
    "whole_batches": (PartsOfBatches, Training),
    "gradients_returned": (Training, GradientsReturned),
}

if __name__ == "__main__":
    ASIDE_HONEST[sys.argv[1]][sys.argv[2] == "after"]().run()
