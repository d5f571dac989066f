"""How near to the best of a whole space does a search come that tries a quarter of it?

    python -m benchmarks.relaunch.relaunch_spaces [--only NAME] [--seeds 50] [--raw] [--sampler TPESampler]

Every point of three spaces was measured once, by starting the job anew: `results/relaunch-spaces.json` holds
log-ratios with their intervals. Two larger ones are of `large_tables`. The replay draws each answer anew
within its interval; found is what the table says of the point that was chosen. The table is smoothed first
(`--raw`: not): of 31 points that were measured to 15 % each, the best as measured is the luckiest.
"""

import itertools
import json
import math
import os
import statistics
import sys
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import optuna

from autobrrr.relaunch.search.param_specs import parse_parameter
from autobrrr.relaunch.search.point_search import Search
from autobrrr.relaunch.search.search_space import Parameter, Point, Result, Space, make_space
from benchmarks import ROOT, parser
from benchmarks.relaunch.large_tables import ORDERED
from benchmarks.relaunch.large_tables import RESULTS as LARGE

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


class Table(NamedTuple):
    """A space that was measured in full: for each point the log of its speed, and half of an interval."""

    space: Space
    rows: dict[Point, tuple[float, float]]

    def smooth(self) -> "Table":
        """What effects of levels and of their pairs explain in the place of each measured point."""
        keys = {point: " + ".join(self.space.kept(point)) for point in self.rows}
        fitted = smoothed({"": 1.0, **{key: math.exp(-self.rows[point][0]) for point, key in keys.items()}})
        rows = {
            point: (math.log(fitted[""] / fitted[keys[point]]), half)
            for point, (_, half) in self.rows.items()
        }
        return Table(self.space, rows)


def small_table(name: str) -> Table:
    """One that was measured by starting the job anew."""
    points = json.loads(TABLES.read_text())[name]["points"]
    known = (row for row in points if row["log_speed"] is not None)
    rows = {tuple(row["point"]): (row["log_speed"], row["log_speed"] - row["low"]) for row in known}
    return Table(space_of(SPACES[name])[1], rows)


def large_table(name: str) -> Table:
    """One of `large_tables`; the command as given has the first value of each flag."""
    stored = json.loads(LARGE.read_text())[name]
    parameters = tuple(
        Parameter(
            name=flag, kind="flag", levels=tuple(values), given=0, ordered=flag in ORDERED, cls="rounding"
        )
        for flag, values in stored["flags"].items()
    )
    points = itertools.product(*(range(len(each.levels)) for each in parameters))
    base_ns = stored["points"][0][0]
    rows = {
        point: (math.log(base_ns / ns), half_ns / ns)
        for point, (ns, half_ns) in zip(points, stored["points"], strict=True)
    }
    return Table(Space(parameters=parameters), {point: row for point, row in rows.items() if any(point)})


def replay(table: Table, seed: int, sampler: str | None) -> tuple[float, int]:
    """Share of the best speed that the search found, and trials."""
    draw = np.random.default_rng(seed)
    search = Search(table.space, seed=seed)
    if sampler is not None:
        more = {"multivariate": True} if sampler == "TPESampler" else {}
        search._study.sampler = getattr(optuna.samplers, sampler)(seed=seed, n_startup_trials=3, **more)
    while (point := search.ask()) is not None:
        if (row := table.rows.get(point)) is None:
            search.tell(Result(point=point, value=None, kind="crash"))
            continue
        value = row[0] + float(draw.normal(0, row[1] / Z95))
        search.tell(Result(point=point, value=value, low=value - row[1], kind="measured"))
    chosen, _ = table.rows.get(search.best.point, (0.0, 0.0)) if search.best is not None else (0.0, 0.0)
    best = max(speed for speed, _ in table.rows.values())
    return math.exp(max(0.0, chosen) - max(0.0, best)), len(search.results)


def main() -> None:
    flags = parser(__doc__)
    large = list(json.loads(LARGE.read_text())) if LARGE.exists() else []
    flags.add_argument("--only", choices=[*SPACES, *large])
    flags.add_argument("--seeds", type=int, default=5)
    flags.add_argument("--sampler", help="one of Optuna's, to draw instead: TPESampler or GPSampler")
    flags.add_argument("--raw", action="store_true", help="take the best as measured for the best")
    args = flags.parse_args()
    print("| space | points | best | trials | found, median | 5th percentile | seeds at >= 95 % |")
    print("|---|---|---|---|---|---|---|")
    for name in [args.only] if args.only else [*SPACES, *large]:
        table = small_table(name) if name in SPACES else large_table(name)
        table = table if args.raw else table.smooth()
        best = math.exp(max(speed for speed, _ in table.rows.values()))
        runs = [replay(table, seed, args.sampler) for seed in range(args.seeds)]
        shares = [run[0] for run in runs]
        print(
            f"| {name} | {len(table.rows)} | {best:.2f}x | {max(run[1] for run in runs)}"
            f" | {statistics.median(shares):.1%} | {float(np.quantile(shares, 0.05)):.1%}"
            f" | {sum(share >= 0.95 for share in shares)} of {len(shares)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
