"""What do the remedies on the model bring, where they should help and where they should not?

    python -m benchmarks.tuning.model_remedies [--pairs 9] [--only NAME]…

Each remedy on small live models in this process, one thread: switched on and off in turn, blocks of
about 0.2 s, first step of a block left out. Speed-up: median of the ratios of neighbouring blocks, with
the range of the middle half. Price: the first switching on with its first step.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.injected.remedies.registry import Refused, WatchedUndo

BLOCK_S = 0.2


class Pointwise(nn.Module):
    """A gated recurrence: moves memory and does little else."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.ParameterList(nn.Parameter(torch.randn(512) * 0.1) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = x
        for gate in self.gates:
            state = state * torch.sigmoid(gate * x) + torch.tanh(state + gate) * 0.5
        return state


class Block(nn.Module):
    """A transformer's layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down, self.drop = (
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
            nn.Dropout(0.1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        heads = (
            part.view(rows, length, 4, -1).transpose(1, 2)
            for part in self.project(self.norms[0](x)).chunk(3, -1)
        )
        seen = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.drop(self.out(seen.transpose(1, 2).reshape(rows, length, width)))
        return x + self.drop(self.down(functional.gelu(self.up(self.norms[1](x)))))


def images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model and the shape of its batches."""

    make: Callable[[], nn.Module]
    batch: tuple[int, ...]


MODELS = {
    "convolutions": Model(make=images, batch=(16, 3, 32, 32)),
    "wide linear": Model(
        make=lambda: nn.Sequential(*(part for _ in range(4) for part in (nn.Linear(512, 512), nn.GELU()))),
        batch=(256, 512),
    ),
    "tiny layers": Model(
        make=lambda: nn.Sequential(
            *(part for _ in range(8) for part in (nn.Linear(32, 32), nn.LayerNorm(32), nn.GELU()))
        ),
        batch=(8, 32),
    ),
    "pointwise": Model(make=Pointwise, batch=(1024, 512)),
    "transformer": Model(make=lambda: nn.Sequential(*(Block(64) for _ in range(6))), batch=(4, 64, 64)),
}
REMEDIES: tuple[tuple[str, dict[str, object]], ...] = (
    ("compile.default", {}),
    ("compile.regional", {}),
    ("layout.channels_last", {}),
    ("precision.autocast_bf16", {}),
    ("precision.float32_matmul_precision", {}),
    ("attention.sdpa", {"kernel": "math"}),
    ("recompute.checkpoint", {}),
)


class Loop:
    """A training loop around one model."""

    def __init__(self, model: Model) -> None:
        torch.manual_seed(0)
        self.model, self.batch = model.make(), model.batch
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.job = Job(torch)
        self.job.saw_root(self.model)
        self.job.saw_optimizer(self.optimizer)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(torch.randn(self.batch)).square().mean().backward()
        self.optimizer.step()

    def seconds(self, steps: int) -> float:
        """A step's mean, the first one left out."""
        self.step()
        began = time.perf_counter()
        for _ in range(steps):
            self.step()
        return (time.perf_counter() - began) / steps


def measure(loop: Loop, name: str, options: dict[str, object], pairs: int) -> str:
    """One row of the table."""
    remedy = REGISTRY[name]
    given = remedy.option_values(options)
    began = time.perf_counter()
    undo = remedy.apply(loop.job, given)
    loop.step()
    price_s = time.perf_counter() - began
    why = undo.trouble() if isinstance(undo, WatchedUndo) else None
    undo()
    if why is not None:
        raise Refused(why)
    steps = max(3, int(BLOCK_S / loop.seconds(3)))
    ratios, order = [], random.Random(0)
    plain_s = 0.0
    for _ in range(pairs):
        took = {}
        for cured in (True, False) if order.random() < 0.5 else (False, True):
            undo = remedy.apply(loop.job, given) if cured else (lambda: None)
            took[cured] = loop.seconds(steps)
            undo()
        ratios.append(took[False] / took[True])
        plain_s = took[False]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{1e3 * plain_s:8.2f} {middle:8.2f} {low:7.2f} to {high:.2f} {price_s:8.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--only", action="append", default=[])
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'remedy':36} {'model':14} {'step ms':>8} {'speed-up':>8} {'middle half':>15} {'price s':>8}")
    for name, options in REMEDIES:
        if args.only and name not in args.only:
            continue
        for title, model in MODELS.items():
            loop = Loop(model)
            for _ in range(5):
                loop.step()
            try:
                row = measure(loop, name, options, args.pairs)
            except Refused as refused:
                row = f"refused: {refused}"
            print(f"{name:36} {title:14} {row}", flush=True)


if __name__ == "__main__":
    main()
