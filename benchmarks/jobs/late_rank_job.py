"""A job of several gloo ranks, one of which is late, by CAUSE and LATE of the environment; 180 s at most.

Timed waits, which take no CPU, stand in for kernels: every rank waits in its forward, its backward and its
optimizer. What the late rank does beyond that is what is planted.
"""

import gc
import io
import os
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

CAUSE = os.environ.get("CAUSE", "quiet")
MS = 1e-3
LATE_S = 12 * MS
EVERY = 12  # steps between two checkpoints
BACKWARDS = 4 if CAUSE == "synced" else 1  # of a step, each of which exchanges gradients
LIFE_S = 180.0

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
late = rank == int(os.environ.get("LATE", "1"))
torch.manual_seed(rank)


def waits(cause: str) -> float:
    """What the late rank waits longer, where this is planted."""
    planted = "loader" if CAUSE == "synced" else CAUSE
    return LATE_S if late and cause == planted else 0.0


class Tokens(IterableDataset[Tensor]):
    """Whole numbers, [length]: as long on every rank, or not."""

    def __iter__(self) -> Iterator[Tensor]:
        while True:
            time.sleep(0.25 * MS + waits("loader") / 4)
            yield torch.zeros(64, dtype=torch.long)


def collated(rows: list[Tensor]) -> Tensor:
    length = 64
    if CAUSE == "uneven" and late:
        length = 112
    if CAUSE == "uneven_in_turn":
        length = int(torch.randint(1, 5, ())) * 40
    return torch.stack(rows).repeat(1, 3)[:, :length]


class Wait(torch.autograd.Function):
    """Stands in for a layer's kernels."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, data: Tensor, tokens: int) -> Tensor:
        ctx.tokens = tokens  # type: ignore[attr-defined]
        time.sleep(2 * MS * tokens / 64 + waits("forward") / 2)
        return data.view_as(data)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor, None]:
        tokens = ctx.tokens  # type: ignore[attr-defined]
        time.sleep(4 * MS * tokens / 64 + waits("backward") / 2)
        return gradients[0], None


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedded = nn.Embedding(8, 64)
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(2))
        if os.environ.get("BUFFERS"):  # rank 0 hands its own to the others before each forward
            self.register_buffer("seen", torch.zeros(64))

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.embedded(tokens)
        for layer in self.layers:
            found = Wait.apply(layer(found), tokens.shape[1])
        return found


class Descent(torch.optim.SGD):
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        time.sleep(1 * MS + waits("optimizer"))
        super().step()


def copied(batch: Tensor) -> Tensor:
    """Stands in for the copy to a device."""
    time.sleep(0.5 * MS + waits("copies"))
    return batch.clone()


model = DistributedDataParallel(Net(), bucket_cap_mb=0.02)
optimizer = Descent(model.parameters(), lr=1e-3)
kept = [[number] for number in range(200_000)] if CAUSE == "gc" and late else []
work = torch.randn(256, 256)
heavy = torch.zeros(8_000_000 if CAUSE == "collectives" else 0)
ends = time.monotonic() + LIFE_S
for number, batch in enumerate(DataLoader(Tokens(), batch_size=4, collate_fn=collated)):
    if CAUSE in ("cpu", "cpu_quiet"):
        for _ in range(80):
            work @ work
    optimizer.zero_grad()
    moved = copied(batch)
    for _ in range(BACKWARDS):
        model(moved).square().mean().backward()
    if CAUSE == "collectives":
        dist.all_reduce(heavy)
    optimizer.step()
    if waits("gc"):
        gc.collect()
    if waits("checkpoint") and number % EVERY == 0:
        torch.save(model.state_dict(), io.BytesIO())
        time.sleep(60 * MS)
    if waits("own_code"):
        time.sleep(LATE_S)
    if number == 3:
        print("training", flush=True)
    if time.monotonic() > ends:
        break
os._exit(0)  # the other ranks may be a step behind
