"""More of the zoo: batches in every kind of container, and steps of unusual make.

`ACCEPTED` names the batch that has to be found, `REFUSED` the reason that has to be given.
"""

from __future__ import annotations

import dataclasses
from collections import UserDict, namedtuple

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence

from support.batch_probe.shadow import Job
from support.batch_probe.shadow_loop import Kind

Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Batch:
    """What many collate functions return."""

    words: torch.Tensor
    lengths: torch.Tensor
    labels: torch.Tensor
    name: str = "batch"


class Tagger(nn.Module):
    """Takes a dataclass; sums over the words that are there; the loss is inside."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(30, 12), nn.Linear(12, 5)

    def forward(self, batch: Batch) -> torch.Tensor:
        there = torch.arange(batch.words.shape[1]) < batch.lengths[:, None]
        hidden = (self.embed(batch.words) * there[..., None]).sum(1) / batch.lengths[:, None]
        return functional.cross_entropy(self.head(hidden), batch.labels)


def dataclass_with_lengths_and_the_loss_inside() -> Kind:
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batch = Batch(torch.randint(0, 30, (8, 11)), torch.randint(1, 12, (8,)), torch.randint(0, 5, (8,)))

    def step() -> None:
        optimizer.zero_grad()
        model(batch).backward()
        optimizer.step()

    return Kind([model, optimizer], step)


class TakesWords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(30, 12), nn.Linear(12, 5)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        weights = attention_mask / attention_mask.sum(1, keepdim=True)
        return self.head((self.embed(input_ids) * weights[..., None]).sum(1))


def batch_encoding_of_transformers() -> Kind:
    from transformers import BatchEncoding

    model = TakesWords()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    mask = torch.ones(8, 11)
    mask[::2, 7:] = 0
    batch = BatchEncoding({"input_ids": torch.randint(0, 30, (8, 11)), "attention_mask": mask})
    labels = torch.randint(0, 5, (8,))

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(**batch), labels).backward()
        optimizer.step()

    return Kind([model, optimizer], step)


class TakesNest(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 8), nn.Linear(7, 8)

    def forward(self, batch: UserDict[str, object]) -> dict[str, torch.Tensor]:
        pair, (shift, _) = batch["pair"], batch["more"]  # type: ignore[misc]
        return {"score": (self.left(pair.left) * self.right(pair.right)).sum(-1) + shift}  # type: ignore[attr-defined, has-type]


def nest_of_tuples_and_dicts() -> Kind:
    model = TakesNest()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    pair = Pair(torch.randn(8, 6), torch.randn(8, 7))
    batch = UserDict({"pair": pair, "more": [torch.randn(8), "a word"]})

    def step() -> None:
        optimizer.zero_grad()
        model(batch)["score"].square().mean().backward()
        optimizer.step()

    return Kind([model, optimizer], step)


def loss_scaler() -> Kind:
    """GradScaler as it comes, over a net that overflows now and then: such steps are skipped."""
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=7)
    x, y = torch.randn(8, 12), torch.randint(0, 4, (8,))

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return Kind([model, optimizer], step)


class Square(torch.autograd.Function):
    """A function with a backward of its own."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return 2 * x * grad


class UsesSquare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(12, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(Square.apply(self.first(x)))


def custom_autograd_function() -> Kind:
    model = UsesSquare()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    x, y = torch.randn(8, 12), torch.randint(0, 4, (8,))

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return Kind([model, optimizer], step)


def teacher_and_student() -> Kind:
    student, teacher = nn.Linear(12, 4), nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 4))
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05)
    x = torch.randn(8, 12)

    def step() -> None:
        optimizer.zero_grad()
        with torch.no_grad():
            wanted = teacher(x)
        functional.mse_loss(student(x), wanted).backward()
        optimizer.step()
        with torch.no_grad():  # a moving average, as self-distillation has it
            teacher[2].bias.lerp_(student.bias, 0.01)

    return Kind([student, teacher, optimizer], step)


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.GRU(6, 8)

    def forward(self, x: object) -> torch.Tensor:
        return self.body(x)[1][0]


def packed_sequence() -> Kind:
    model = Packed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    packed = pack_padded_sequence(torch.randn(9, 4, 6), torch.tensor([9, 7, 4, 2]))

    def step() -> None:
        optimizer.zero_grad()
        model(packed).square().mean().backward()
        optimizer.step()

    return Kind([model, optimizer], step)


class Sums(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)

    def forward(self, rows: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack([self.linear(row).sum(0) for row in rows])


def ragged_rows() -> Kind:
    model = Sums()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rows = [torch.randn(length, 6) for length in (3, 9, 5, 7)]

    def step() -> None:
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()

    return Kind([model, optimizer], step)


class Wary(dict):  # type: ignore[type-arg]
    """A batch that counts how often it is copied, and does not want to be."""

    def __copy__(self) -> Wary:
        raise RuntimeError("one batch only")


class TakesWary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(12, 4)

    def forward(self, batch: Wary) -> torch.Tensor:
        return self.linear(batch["x"])


def container_that_is_not_copied() -> Kind:
    model = TakesWary()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = Wary(x=torch.randn(8, 12))

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    return Kind([model, optimizer], step)


ACCEPTED: dict[str, tuple[Job, int]] = {
    function.__name__: (function, 8)
    for function in (
        dataclass_with_lengths_and_the_loss_inside,
        batch_encoding_of_transformers,
        nest_of_tuples_and_dicts,
        loss_scaler,
        custom_autograd_function,
        teacher_and_student,
    )
}
REFUSED: dict[str, tuple[Job, str]] = {
    "packed sequence": (packed_sequence, "packed sequence"),
    "rows of their own lengths": (ragged_rows, "is a batch"),
    "a container that can't be copied": (container_that_is_not_copied, "RuntimeError: one batch only"),
}
