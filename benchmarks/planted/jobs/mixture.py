"""Two bottlenecks in one step, in a given proportion: `--first overhead --second memory --share 0.7`.

The job times one unit of each part when it starts and takes as many of each as the share asks for,
so that the proportion holds on any machine. All parts live in one step: one loss, one backward.
"""

import math
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.planted.loop import Knobs, Loop, best_ns, planted_job

MODEL_PARTS = ("overhead", "memory", "compute")


class Part(nn.Module):
    """Some units of one kind of work on rows of `width` columns."""

    def __init__(self, kind: str, units: int, width: int) -> None:
        super().__init__()
        self.kind, self.units = kind, units
        self.gain = nn.Parameter(torch.ones(1))
        if kind == "compute":
            self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(units)])
        if kind == "memory":
            self.gain = nn.Parameter(torch.ones(width * 16 if width >= 8 else width))

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "compute":
            for layer in self.layers:
                x = layer(x)
            return x.mean()
        if self.kind == "memory":
            x = x.repeat(1, len(self.gain) // x.shape[1]) * self.gain
            for _ in range(self.units):
                x = torch.relu(x + 1.0)
            return x.mean()
        x = x[:, :1].contiguous()
        for _ in range(self.units):
            x = torch.tanh(x * self.gain)
        return x.mean()


class Asleep(Dataset[Tensor]):
    """Rows that take a while to come."""

    def __init__(self, row: Tensor, asleep_s: float) -> None:
        self.row, self.asleep_s = row, asleep_s

    def __len__(self) -> int:
        return 100_000_000

    def __getitem__(self, _index: int) -> Tensor:
        if self.asleep_s:
            time.sleep(self.asleep_s)
        return self.row


def simulate(turns: int) -> float:
    """The user's own code."""
    place, speed = 1.0, 0.0
    for _ in range(turns):
        speed -= math.sin(place) * 0.01
        place += speed * 0.01
    return place


def units_for(kind: str, wanted_ns: float, x: Tensor) -> int:
    """How many units of a part take so long, forward and backward (or in the user's own code)."""
    if kind == "input":
        return round(wanted_ns)
    if kind == "host":
        return round(wanted_ns / best_ns(lambda: simulate(5000)) * 5000)
    units = 8
    for _ in range(4):  # what is shared by all units, and caches, make the first guess a poor one
        took_ns = best_ns(trained(Part(kind, units, x.shape[1]).to(x.device), x))
        units = max(1, round(units * wanted_ns / took_ns))
    return units


def trained(part: Part, x: Tensor) -> Callable[[], None]:
    """One step of one part alone."""
    optimizer = torch.optim.SGD(part.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        part(x).backward()
        optimizer.step()
        if x.device.type == "cuda":
            torch.cuda.synchronize()

    return step


def loader(rows: Tensor, asleep_ns: int) -> Iterator[Tensor]:
    """Batches that take `asleep_ns` to come, in four items."""
    quarter = rows[: max(1, len(rows) // 4)]
    data = Asleep(quarter, asleep_ns / 4e9)
    return iter(DataLoader(data, batch_size=4, collate_fn=torch.cat))


@planted_job(first="overhead", second="memory", share=0.5, step_ms=24.0, first_units=0, second_units=0)
def main(loop: Loop, args: Knobs) -> None:
    batch, width = loop.size(256, 1), loop.size(256, 2)
    rows = torch.randn(batch, width)
    units = {args.first: args.first_units, args.second: args.second_units}
    for kind, share in ((args.first, args.share), (args.second, 1 - args.share)):
        if not units[kind]:
            units[kind] = units_for(kind, share * args.step_ms * 1e6, rows.to(loop.device))
    loop.settled = {"first_units": units[args.first], "second_units": units[args.second]}
    if args.clock:
        for kind in {"memory", "compute"} & units.keys():
            many = units[kind]
            loop.settled[f"{kind}_ns"] = best_ns(trained(Part(kind, many, width).to(loop.device), rows))
    parts = nn.ModuleList([Part(kind, units[kind], width) for kind in MODEL_PARTS if kind in units])
    if not parts:
        parts.append(Part("compute", 2, width))  # something has to be trained
    parts = parts.to(loop.device)
    optimizer = torch.optim.SGD(parts.parameters(), lr=1e-4)
    loop.works(
        flops=6 * batch * width * width * units.get("compute", 0),
        traffic_bytes=4 * batch * width * 16 * units.get("memory", 0) * 7,
    )
    batches = loader(rows, units.get("input", 0))
    for _ in loop:
        x = next(batches) if "input" in units else rows
        x = x.to(loop.device)
        loop.mark("input")
        optimizer.zero_grad()
        loss = torch.stack([part(x) for part in parts]).sum()
        loop.learn(loss, optimizer)
        if "host" in units:
            simulate(units["host"])
        loop.mark("host")
