"""What the shadow probe costs the job, and how well it foretells twice the batch.

    python -m benchmarks.cost.probe_pauses [--seconds 20] [--kinds mlp,cnn]

Each kind trains in this process, first plainly at B and 2B in turns (the truth), then with a probe
at its step boundaries, spread as it asks to be. Pauses are what the task spends at a boundary; the
limit is the larger of 30 ms and three steps. `foretold` is (replay at 2B + rest) / (replay at B +
rest) with the optimizer and everything else in `rest`; the spread of the truth's blocks stands
behind it. Prints a table on standard output, also as one JSON object a line with --json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import nn
from torch.nn import functional

from autobrrr.injected.batch_probe.probe_task import ShadowTask
from autobrrr.injected.batch_probe.replay_schedule import pause_limit_ns
from autobrrr.injected.live_torch.live_job import Job
from support.batch_probe.shadow import LanguageModel, Recurrent, supervised
from support.batch_probe.shadow_loop import Boundaries, Kind

Sized = Callable[[int], Kind]


def chain(widths: list[int], between: Callable[[], nn.Module]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for one, other in itertools.pairwise(widths):
        layers += [nn.Linear(one, other), between()]
    return nn.Sequential(*layers[:-1])


def rows(batch: int, width: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(2, batch, width), torch.randint(0, classes, (2, batch))


def mlp_tiny(batch: int) -> Kind:
    return supervised(chain([32, 64, 64, 4], nn.ReLU), *rows(batch, 32, 4))


def mlp_wide(batch: int) -> Kind:
    model = chain([512, 1024, 1024, 10], nn.ReLU)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    return supervised(model, *rows(batch, 512, 10), optimizer=sgd)


def deep(batch: int) -> Kind:
    return supervised(chain([16] * 20 + [4], lambda: nn.LayerNorm(16)), *rows(batch, 16, 4))


def cnn(batch: int) -> Kind:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    return supervised(
        model, torch.randn(2, batch, 3, 24, 24), torch.randint(0, 10, (2, batch)), optimizer=sgd
    )


def lstm(batch: int) -> Kind:
    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(out.reshape(-1, 3), labels.reshape(-1))

    return supervised(Recurrent(), torch.randn(2, 12, batch, 6), torch.randint(0, 3, (2, 12, batch)), loss)


def language_model(batch: int) -> Kind:
    model = LanguageModel(words=200, width=64, length=32)

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(out.reshape(-1, 200), labels.reshape(-1))

    tokens = torch.randint(0, 200, (2, batch, 32))
    return supervised(model, tokens, tokens.roll(-1, 2), loss)


def optimizer_bound(batch: int) -> Kind:
    model = chain([1024, 1024, 1024, 10], nn.ReLU)
    return supervised(model, *rows(batch, 1024, 10))


def two_towers(batch: int) -> Kind:
    left, right = nn.Linear(128, 64), nn.Linear(96, 64)
    adam = torch.optim.AdamW([*left.parameters(), *right.parameters()], lr=1e-3)
    one, other = torch.randn(batch, 128), torch.randn(batch, 96)

    def step() -> None:
        adam.zero_grad()
        logits = functional.normalize(left(one)) @ functional.normalize(right(other)).T * 10
        labels = torch.arange(batch)
        (functional.cross_entropy(logits, labels) + functional.cross_entropy(logits.T, labels)).backward()
        adam.step()

    return Kind([left, right, adam], step)


KINDS: dict[str, tuple[Sized, int]] = {
    "mlp_tiny": (mlp_tiny, 8),
    "deep": (deep, 4),
    "mlp_wide": (mlp_wide, 256),
    "cnn": (cnn, 16),
    "lstm": (lstm, 16),
    "language_model": (language_model, 8),
    "optimizer_bound": (optimizer_bound, 8),
    "two_towers": (two_towers, 256),
}


def truth(make: Sized, batch: int, seconds: float) -> tuple[int, int, list[float]]:
    """Median step at B and at 2B, and the ratio in each pair of blocks."""
    kinds = [make(batch), make(2 * batch)]
    times: list[list[int]] = [[], []]
    ratios: list[float] = []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline or len(ratios) < 5:
        blocks = []
        for kind, kept in zip(kinds, times, strict=True):
            block = []
            for _ in range(12):
                began = time.perf_counter_ns()
                kind.step()
                block.append(time.perf_counter_ns() - began)
            blocks.append(median(block[2:]))
            kept.extend(block[2:])
        ratios.append(blocks[1] / blocks[0])
    return int(median(times[0])), int(median(times[1])), sorted(ratios)


def probed(make: Sized, batch: int, seconds: float) -> dict[str, object]:
    """Train with a probe until it has ended."""
    kind = make(batch)
    optimizer = next(part for part in kind.parts if isinstance(part, torch.optim.Optimizer))
    job = Job(torch)
    job.saw_optimizer(optimizer)
    events: list[dict[str, object]] = []
    task = ShadowTask(job, {"factors": [0.25, 0.5, 1, 2], "rounds": 8}, events.append, time.perf_counter_ns)
    for _ in range(20):
        kind.step()
    boundaries = Boundaries(task, job, optimizer, None)
    handle = sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(boundaries)
    began = time.perf_counter_ns()
    deadline = began + int(seconds * 1e9)
    while not boundaries.ended and time.perf_counter_ns() < deadline:
        kind.step()
    took = time.perf_counter_ns() - began
    handle.remove()
    task.cancel()
    result = next((event["probed"] for event in events if event["event"] == "probed"), None)
    return {"took_ns": took, "steps": boundaries.seq, "probed": result}


def foretold(result: dict[str, object]) -> float | None:
    """Ratio of the step at 2B to the step at B, the rest of the step kept as it is."""
    points = {point["batch"]: sorted(point["shadow_ns"]) for point in result["points"]}  # type: ignore[attr-defined]
    batch, step = result["batch"], result["step_ns"]
    if batch not in points or 2 * batch not in points:  # type: ignore[operator]
        return None
    low = {size: times[len(times) // 4] for size, times in points.items()}
    return 1 + (low[2 * batch] - low[batch]) / step  # type: ignore[operator]


def row(name: str, seconds: float) -> dict[str, object]:
    make, batch = KINDS[name]
    torch.manual_seed(0)
    step, _, ratios = truth(make, batch, seconds / 2)
    run = probed(make, batch, max(60.0, 4 * seconds))
    result = run["probed"]
    assert isinstance(result, dict)
    total = result["total_pause_ns"]
    return {
        "kind": name,
        "batch": batch,
        "status": result["status"],
        "why": result["why"],
        "step_ns": step,
        "longest_pause_ns": result["longest_pause_ns"],
        "limit_ns": pause_limit_ns(step, None),
        "total_pause_ns": total,
        "steps": run["steps"],
        "share": total / run["took_ns"],
        "replays": sum(len(point["shadow_ns"]) for point in result["points"]),
        "foretold": foretold(result) if result["status"] == "ok" else None,
        "truth": ratios[len(ratios) // 2],
        "truth_spread": [ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]],
        "notes": result["notes"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="for each kind's truth and probe")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"{'kind':<16}{'step ms':>9}{'longest':>9}{'limit':>8}{'total ms':>10}{'share':>7}{'steps':>7}"
        f"{'foretold':>10}{'truth':>7}  (spread)"
    )
    for name in args.kinds.split(","):
        one = row(name, args.seconds)
        if args.json:
            print(json.dumps(one), flush=True)
            continue
        told = "-" if one["foretold"] is None else f"{one['foretold']:.2f}"
        low, high = one["truth_spread"]  # type: ignore[misc]
        print(
            f"{name:<16}{one['step_ns'] / 1e6:>9.2f}{one['longest_pause_ns'] / 1e6:>9.1f}"  # type: ignore[operator]
            f"{one['limit_ns'] / 1e6:>8.0f}{one['total_pause_ns'] / 1e6:>10.0f}{one['share']:>7.0%}"  # type: ignore[operator]
            f"{one['steps']:>7}{told:>10}{one['truth']:>7.2f}  ({low:.2f}-{high:.2f})"
            + (f"  {one['why']}" if one["why"] else "")
            + (f"  {'; '.join(one['notes'])}" if one["notes"] else ""),  # type: ignore[arg-type]
            flush=True,
        )


if __name__ == "__main__":
    main()
