"""One training job that is told over its standard input what to do, a JSON object a line.

    python -m benchmarks.detached.job KIND THREADS

In: {"steps": N} · {"apply": REMEDY, "options": {…}} · {"undo": true} · {"state": true}. Out, a line each:
times of the steps · why it was refused, or null · null · what can be counted in the process.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from autobrrr.agent.live_torch.live_job import Job
from autobrrr.agent.remedies.active_remedies import ActiveRemedies
from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.agent.remedies.registry import Refused


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells, self.out = nn.LSTM(64, 128, batch_first=True), nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.out(self.cells(x)[0][:, -1])
        return found


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.project = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.mix = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU())
        self.out = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        parts = self.project(self.norm(x)).chunk(3, -1)
        heads = (part.view(rows, length, 4, -1).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(*heads).transpose(1, 2).reshape(x.shape)
        found: torch.Tensor = x + seen + self.out(self.mix(x))
        return found


class Pointwise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Parameter(torch.rand(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for gate in self.gates:
            x = torch.tanh(x * gate) + gate
        return x


def convolutions(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, 10),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A model and the shape of its batches; `varies` rows fewer at most, and from a loader with `workers`."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    varies: int = 0
    tokens: int = 0  # whole numbers below it instead of floats
    momentum: bool = False
    workers: int | None = None  # None: the loop makes its batches itself


class Rows(Dataset[torch.Tensor]):
    """Four batches an epoch, so that a setting of the next epoch is there after four steps."""

    def __init__(self, batch: int, shape: tuple[int, ...]) -> None:
        self.rows = torch.rand(4 * batch, *shape)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.rows[index].sin()


def _layers(*sizes: int) -> nn.Module:
    pairs = itertools.pairwise(sizes)
    return nn.Sequential(*(part for a, b in pairs for part in (nn.Linear(a, b), nn.ReLU())))


KINDS = {
    "tiny-mlp": Kind(make=lambda: _layers(32, 64, 64, 64, 10), shape=(16, 32)),
    "wide-mlp": Kind(make=lambda: _layers(512, 1024, 1024, 10), shape=(128, 512), momentum=True),
    "cnn": Kind(make=lambda: convolutions(16), shape=(32, 3, 32, 32)),
    "cnn-varied": Kind(make=lambda: convolutions(16), shape=(32, 3, 32, 32), varies=8),
    "cnn-large": Kind(make=lambda: convolutions(24), shape=(24, 3, 64, 64)),
    "pointwise": Kind(make=Pointwise, shape=(9 << 18,)),
    "pointwise-36MiB": Kind(make=Pointwise, shape=(9 << 20,), momentum=True),
    "transformer": Kind(make=lambda: nn.Sequential(*(Layer(64) for _ in range(4))), shape=(8, 48, 64)),
    "recurrent": Kind(make=Recurrent, shape=(16, 24, 64)),
    "embedding": Kind(
        make=lambda: nn.Sequential(nn.Embedding(20_000, 64), nn.Flatten(), nn.Linear(32 * 64, 10)),
        shape=(64, 32),
        tokens=20_000,
    ),
    "loader": Kind(make=lambda: _layers(512, 256, 10), shape=(64, 512), workers=0),
    "loader-workers": Kind(make=lambda: _layers(512, 256, 10), shape=(64, 512), workers=1),
}


class Loop:
    """The training loop, and what the agent would hold of it."""

    def __init__(self, kind: Kind) -> None:
        torch.manual_seed(0)
        self.kind, self.model = kind, kind.make()
        parameters = self.model.parameters()
        self.optimizer: torch.optim.Optimizer = (
            torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)
            if kind.momentum
            else torch.optim.AdamW(parameters, lr=1e-4)
        )
        self.job = Job(torch)
        self.job.saw_root(self.model)
        self.job.saw_optimizer(self.optimizer)
        self.active = ActiveRemedies(REGISTRY)
        self.losses: list[torch.Tensor] = []
        self.loader: DataLoader[torch.Tensor] | None = None
        self.batches: Iterator[torch.Tensor] = iter(())
        if kind.workers is not None:
            rows, *rest = kind.shape
            self.loader = DataLoader(Rows(rows, tuple(rest)), batch_size=rows, num_workers=kind.workers)
            self.job.saw_loader(self.loader)

    def batch(self) -> torch.Tensor:
        rows, *rest = self.kind.shape
        if self.loader is not None:
            found = next(self.batches, None)
            if found is None:
                self.batches = iter(self.loader)
                found = next(self.batches)
            return found
        rows -= int(torch.randint(0, self.kind.varies + 1, ()))
        if self.kind.tokens:
            return torch.randint(0, self.kind.tokens, (rows, *rest))
        return torch.randn(rows, *rest)

    def step(self) -> None:
        self.optimizer.zero_grad()
        loss = self.model(self.batch()).square().mean()
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.detach())  # as scripts do that draw a curve

    def steps(self, count: int) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {"wall_ns": [], "cpu_ns": []}
        for _ in range(count):
            wall, cpu = time.perf_counter_ns(), time.process_time_ns()
            self.step()
            found["wall_ns"].append(time.perf_counter_ns() - wall)
            found["cpu_ns"].append(time.process_time_ns() - cpu)
        return found

    def apply(self, name: str, options: dict[str, object]) -> str | None:
        try:
            self.active.apply(self.job, name, REGISTRY[name].option_values(options))
        except Refused as refused:
            return str(refused)
        return None

    def undo(self) -> None:
        """As at the end of a session."""
        losses = self.active.undo_all()
        if losses:
            raise SystemExit(f"not undone: {losses}")

    def state(self) -> dict[str, int]:
        """What is countable."""
        modules = list(self.model.modules())
        hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
        steps = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
        return {
            "os_threads": len(os.listdir("/proc/self/task")),
            "python_threads": threading.active_count(),
            "hooks": sum(len(getattr(module, hook)) for module in modules for hook in hooks)
            + sum(len(getattr(self.optimizer, hook)) for hook in steps),
            "own_names": sum(len(vars(module)) for module in modules) + len(vars(self.optimizer)),
            "descriptors": len(os.listdir("/proc/self/fd")),
        }


def main(kind: str, threads: int) -> None:
    """Answer until standard input ends."""
    torch.set_num_threads(threads)
    loop = Loop(KINDS[kind])
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        asked = json.loads(line)
        answer: object = None
        if "steps" in asked:
            answer = loop.steps(asked["steps"])
        elif "apply" in asked:
            answer = loop.apply(asked["apply"], asked["options"])
        elif "undo" in asked:
            loop.undo()
        else:
            answer = loop.state()
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
