"""All combinations of live remedies on one job, each measured in full, for `tuner_figures` to replay.

    python -m benchmarks.tuning.combinations JOB [--rounds 3] [--seconds 0.25] [--threads 1]

The remedies go on and off in this process, through the agent's own remedies. Every round visits all
combinations in an order of its own; each keeps its median over the rounds. The table goes into
benchmarks/results/combinations.json, beside those of other jobs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from autobrrr.injected.live_torch.live_job import Job
from autobrrr.injected.remedies.active_remedies import ActiveRemedies
from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.injected.remedies.registry import Refused
from benchmarks import ROOT

TABLES = ROOT / "benchmarks" / "results" / "combinations.json"
Setting = tuple[str, tuple[tuple[str, object], ...]]
Loop = tuple[nn.Module, torch.optim.Optimizer, Callable[[], torch.Tensor]]

FACTORS: tuple[tuple[Setting | None, ...], ...] = (
    (None, ("optimizer.fused", ()), ("optimizer.foreach", ())),
    (None, ("threads.intra_op", (("threads", 1),)), ("threads.intra_op", (("threads", 2),))),
    (None, ("gc.freeze", ())),
    (None, ("gc.threshold", ())),
    (None, ("compile.default", ())),
)
SETTLE_STEPS = 3
FEWEST_STEPS = 4


def tiny() -> Loop:
    """Sixteen small layers: dispatch."""
    layers = [each for _ in range(16) for each in (nn.Linear(48, 48), nn.LayerNorm(48), nn.GELU())]
    model = nn.Sequential(*layers)
    data = torch.randn(32, 48)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3), lambda: model(data).square().mean()


def transformer() -> Loop:
    """Two encoder layers of width 128 on 4 sequences of 64."""
    layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    data = torch.randn(4, 64, 128)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3), lambda: model(data).square().mean()


class Gated(nn.Module):
    """Pointwise chains over large tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.ParameterList([nn.Parameter(torch.randn(512) * 0.1) for _ in range(3)])

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        for gate in self.gates:
            state = state * torch.sigmoid(state + gate) * 0.9
        return state


def pointwise() -> Loop:
    """Gates over 8 MiB."""
    model = Gated()
    data = torch.randn(4096, 512)
    return model, torch.optim.SGD(model.parameters(), lr=0.01), lambda: model(data).square().mean()


JOBS = {"tiny": tiny, "transformer": transformer, "pointwise": pointwise}


def label(setting: Setting) -> str:
    """As the tuner names a choice."""
    name, options = setting
    inside = ", ".join(f"{key}={value}" for key, value in options)
    return f"{name}({inside})" if inside else name


def measure(job_name: str, rounds: int, seconds: float, threads: int) -> dict[str, object]:
    """Mean step of every combination that the job takes, in nanoseconds."""
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    model, optimizer, loss = JOBS[job_name]()

    def steps(for_s: float, least: int) -> tuple[int, float]:
        began, done = time.perf_counter(), 0
        while done < least or time.perf_counter() - began < for_s:
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
            done += 1
        return done, time.perf_counter() - began

    steps(0.5, 5)
    job, active = Job(torch), ActiveRemedies(REGISTRY)
    job.saw_optimizer(optimizer)
    job.saw_root(model)
    times: dict[str, list[float]] = {}
    refused: dict[str, str] = {}
    combinations = [tuple(each for each in found if each) for found in itertools.product(*FACTORS)]
    draw = random.Random(1)
    for _ in range(rounds):
        draw.shuffle(combinations)
        for combination in combinations:
            try:
                for name, options in combination:
                    active.apply(job, name, dict(options))
            except Refused as why:
                refused[label((name, options))] = str(why)
                active.undo_anywhere()
                for applied in reversed(active.ours):
                    active.undo(applied)
                continue
            steps(0.0, SETTLE_STEPS)
            done, took_s = steps(seconds, FEWEST_STEPS)
            key = " + ".join(sorted(map(label, combination)))
            times.setdefault(key, []).append(1e9 * took_s / done)
            for applied in reversed(active.ours):
                active.undo(applied)
    active.undo_all()
    return {
        "step_ns": {key: round(statistics.median(found)) for key, found in sorted(times.items())},
        "rounds": rounds,
        "seconds": seconds,
        "refused": refused,
        "measured_on": f"{os.cpu_count()} CPUs, torch {torch.__version__.partition('+')[0]}",
    }


def main() -> None:
    """Measure one job and store its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("job", choices=list(JOBS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.25)
    parser.add_argument("--threads", type=int, default=1, help="that the job begins with")
    args = parser.parse_args()
    found = measure(args.job, args.rounds, args.seconds, args.threads)
    tables = json.loads(TABLES.read_text()) if TABLES.exists() else {}
    TABLES.write_text(json.dumps({**tables, args.job: found}, indent=1, sort_keys=True) + "\n")
    times = found["step_ns"]
    assert isinstance(times, dict)
    best = min(times, key=lambda key: times[key])
    print(f"{args.job}: {len(times)} combinations, best {times[''] / times[best]:.2f}x with {best}")
    for name, why in found["refused"].items():  # type: ignore[attr-defined]
        print(f"refused: {name}: {why}")


if __name__ == "__main__":
    main()
