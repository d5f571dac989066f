"""How near to the best of a whole space does a search come that tries a quarter of it?

    python -m benchmarks.relaunch.relaunch_spaces [--only NAME] [--seeds 50] [--raw] [--tpe]

Every point of three spaces was measured once, by starting the job anew: `results/relaunch-spaces.json` holds
log-ratios with their intervals. The replay draws each answer anew within its interval; found is what the
table says of the point that was chosen. The table is smoothed first (`--raw`: not): of 31 points that were
measured to 15 % each, the best as measured is the luckiest.
"""

import json
import math
import os
import statistics
import sys
from dataclasses import dataclass

import numpy as np
from optuna.samplers import TPESampler

from autobrrr.relaunch.search.param_specs import parse_parameter
from autobrrr.relaunch.search.point_search import Search
from autobrrr.relaunch.search.search_space import Point, Result, Space, make_space
from benchmarks import ROOT, parser

JOB = ROOT / "benchmarks/jobs/knobs.py"
TABLES = ROOT / "benchmarks/results/relaunch-spaces.json"
ALL = ("bitwise", "rounding", "stream", "changes-training")
THREADS = "env:OMP_NUM_THREADS=choice:1,2"
RIDGE = 1.0
Z95 = 1.96


@dataclass(frozen=True, slots=True, kw_only=True)
class Studied:
    """A job, and what is varied of it."""

    flags: tuple[str, ...]
    specs: tuple[str, ...]


SPACES = {
    "images": Studied(
        flags=("--work", "images", "--batch-size", "16", "--num-workers", "0"),
        specs=("--batch-size=choice:8,16,32,64", "--num-workers=int:0..1", THREADS, "optimizer.fused"),
    ),
    "mlp": Studied(
        flags=("--work", "mlp", "--batch-size", "16", "--foreach", "0"),
        specs=("--batch-size=choice:8,16,32,64", THREADS, "optimizer.fused", "gc.freeze"),
    ),
    "conv": Studied(
        flags=("--work", "conv", "--batch-size", "4", "--width", "32", "--depth", "4"),
        specs=("--batch-size=choice:4,8", THREADS, "layout.channels_last", "optimizer.fused", "host.malloc"),
    ),
}


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONDONTWRITEBYTECODE": "1"}


def space_of(studied: Studied) -> tuple[list[str], Space]:
    command = [sys.executable, str(JOB), *studied.flags]
    read = [parse_parameter(spec, command, environment(), {}) for spec in studied.specs]
    return command, make_space(read, command, {}, ALL)


def smoothed(table: dict[str, float]) -> dict[str, float]:
    """The table without the scatter of single combinations: effects of remedies and of their pairs.

    Least squares on log times, pairs held back by a ridge of one combination's weight. The fastest
    of many points as measured would be the luckiest.
    """
    rows = [frozenset(key.split(" + ")) if key else frozenset() for key in table]
    labels = sorted(set().union(*rows))
    pairs = [
        {a, b} for i, a in enumerate(labels) for b in labels[i + 1 :] if any({a, b} <= row for row in rows)
    ]
    effects = [set(), *({label} for label in labels), *pairs]
    design = np.array([[float(effect <= row) for effect in effects] for row in rows])
    ridge = np.diag([0.0] * (1 + len(labels)) + [RIDGE] * len(pairs))
    logs = np.log(list(table.values()))
    found = np.linalg.solve(design.T @ design + ridge, design.T @ logs)
    return dict(zip(table, np.exp(design @ found).tolist(), strict=True))


def smooth(table: dict[str, object]) -> None:
    """Put what effects of levels and of their pairs explain into the place of each measured point."""
    rows = [row for row in table["points"] if row["log_speed"] is not None]  # type: ignore[attr-defined]
    keys = [row["label"].replace(", ", " + ") for row in rows]
    times = {key: math.exp(-row["log_speed"]) for key, row in zip(keys, rows, strict=True)}
    fitted = smoothed({"": 1.0, **times})
    for key, row in zip(keys, rows, strict=True):
        half = row["log_speed"] - row["low"]
        row["log_speed"] = math.log(fitted[""] / fitted[key])
        row["low"] = row["log_speed"] - half


def replay(name: str, table: dict[str, object], seed: int, tpe: bool) -> tuple[float, int, int]:
    """Share of the best speed that the search found, trials, and points in all."""
    _, space = space_of(SPACES[name])
    rows = {tuple(row["point"]): row for row in table["points"] if row["log_speed"] is not None}  # type: ignore[attr-defined]
    draw = np.random.default_rng(seed)
    search = Search(space, seed=seed)
    if tpe:
        sampler = TPESampler(seed=seed, multivariate=True, n_startup_trials=3)
        search._sampler_for = lambda free: sampler  # type: ignore[method-assign]
    while (point := search.ask()) is not None:
        if (row := rows.get(point)) is None:
            search.tell(Result(point=point, value=None, kind="crash"))
            continue
        half = row["log_speed"] - row["low"]
        value = row["log_speed"] + float(draw.normal(0, half / Z95))
        search.tell(Result(point=point, value=value, low=value - half, kind="measured"))
    chosen: Point | None = None if search.best is None else search.best.point
    speeds = {point: math.exp(row["log_speed"]) for point, row in rows.items()}
    best = max(1.0, *speeds.values())
    return max(1.0, speeds.get(chosen, 1.0)) / best, len(search.results), len(space.points())


def main() -> None:
    flags = parser(__doc__)
    flags.add_argument("--only", choices=list(SPACES))
    flags.add_argument("--seeds", type=int, default=5)
    flags.add_argument("--tpe", action="store_true", help="let Optuna's TPE draw instead")
    flags.add_argument("--raw", action="store_true", help="take the best as measured for the best")
    args = flags.parse_args()
    tables = json.loads(TABLES.read_text())
    names = [args.only] if args.only else list(SPACES)
    print("| space | points | best | trials | found, median | 5th percentile | seeds at >= 95 % |")
    print("|---|---|---|---|---|---|---|")
    for name in (each for each in names if each in tables):
        if not args.raw:
            smooth(tables[name])
        best = math.exp(max(row["log_speed"] or 0.0 for row in tables[name]["points"]))
        runs = [replay(name, tables[name], seed, args.tpe) for seed in range(args.seeds)]
        shares = [run[0] for run in runs]
        print(
            f"| {name} | {runs[0][2]} | {best:.2f}x | {max(run[1] for run in runs)}"
            f" | {statistics.median(shares):.1%} | {float(np.quantile(shares, 0.05)):.1%}"
            f" | {sum(share >= 0.95 for share in shares)} of {len(shares)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
