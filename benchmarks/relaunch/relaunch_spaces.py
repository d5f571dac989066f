"""How near to the best of a whole space does a search come that tries a quarter of it?

    python -m benchmarks.relaunch.relaunch_spaces measure [--only NAME] # every point of each space, tried
    python -m benchmarks.relaunch.relaunch_spaces [--seeds 50] [--raw] [--tpe]   # a search on them

`measure` starts the job anew for every point, beside the command as given, as `tune` does, and keeps the
log-ratios with their intervals. The replay draws each answer anew within its interval; found is what the
table says of the point that was chosen. The table is smoothed first (`--raw`: not): of 31 points that were
measured to 15 % each, the best as measured is the luckiest.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from optuna.samplers import TPESampler

from autobrrr.records import Trial
from autobrrr.relaunch.search import point_search as searching
from autobrrr.relaunch.search.param_specs import parse_parameter
from autobrrr.relaunch.search.point_search import Search
from autobrrr.relaunch.search.search_space import Point, Result, Space, make_space
from autobrrr.relaunch.search.seed_points import Hints, seeds
from autobrrr.relaunch.study.study import Listener, Study
from autobrrr.relaunch.trial.trial_factory import TrialFactory
from benchmarks import ROOT
from benchmarks.tuning.tuner_figures import smoothed

JOB = ROOT / "benchmarks/jobs/knobs.py"
TABLES = ROOT / "benchmarks/results/relaunch-spaces.json"
ALL = ("bitwise", "rounding", "stream", "changes-training")
THREADS = "env:OMP_NUM_THREADS=choice:1,2"
Z95 = 1.96


@dataclass(frozen=True, slots=True, kw_only=True)
class Studied:
    """A job, what is varied of it, and the hints that its diagnosis gives."""

    flags: tuple[str, ...]
    specs: tuple[str, ...]
    hints: Hints


SPACES = {
    "images": Studied(
        flags=("--work", "images", "--batch-size", "16", "--num-workers", "0"),
        specs=("--batch-size=choice:8,16,32,64", "--num-workers=int:0..1", THREADS, "optimizer.fused"),
        hints=Hints(regime="input", cores=2),
    ),
    "mlp": Studied(
        flags=("--work", "mlp", "--batch-size", "16", "--foreach", "0"),
        specs=("--batch-size=choice:8,16,32,64", THREADS, "optimizer.fused", "gc.freeze"),
        hints=Hints(regime="overhead", cores=2),
    ),
    "conv": Studied(
        flags=("--work", "conv", "--batch-size", "4", "--width", "32", "--depth", "4"),
        specs=(
            "--batch-size=choice:4,8",
            THREADS,
            "layout.channels_last",
            "optimizer.fused",
            "host.malloc",
        ),
        hints=Hints(regime="compute", cores=2),
    ),
}


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONDONTWRITEBYTECODE": "1"}


def space_of(studied: Studied) -> tuple[list[str], Space]:
    command = [sys.executable, str(JOB), *studied.flags]
    read = [parse_parameter(spec, command, environment(), {}) for spec in studied.specs]
    return command, make_space(read, command, {}, ALL)


def measure(name: str) -> dict[str, object]:
    """All points of a space; goes on where an earlier call was cut off."""
    command, space = space_of(SPACES[name])
    journal = Path(tempfile.gettempdir()) / f"autobrrr-relaunch-{name}.journal"
    usual, searching.EXHAUSTIVE = searching.EXHAUSTIVE, 1000
    try:
        search = Search(space, journal=journal)
        with (
            tempfile.TemporaryDirectory() as folder,
            TrialFactory(
                command=tuple(command),
                folder=JOB.parent,
                environment=environment(),
                runtime=Path(folder) / "run",
                cache=Path(folder) / "cache",
                space=space,
            ) as stable,
        ):
            course = Study(
                stable=stable,
                space=space,
                search=search,
                budget_ns=1 << 62,
                listener=Listener(on_trial=lambda trial: tell(trial, search)),
            )
            try:
                course._search()  # the search alone: nothing has to be confirmed here
            finally:
                course._close_base()
            machine = stable.machine(course._facts)
    finally:
        searching.EXHAUSTIVE = usual
    journal.unlink()
    rows = [
        {
            "point": list(result.point),
            "label": space.label(result.point),
            "log_speed": result.value,
            "low": result.low,
            "why": result.why,
        }
        for result in search.results
    ]
    studied = SPACES[name]
    return {"machine": machine, "flags": studied.flags, "specs": studied.specs, "points": rows}


def tell(trial: Trial, search: Search) -> None:
    print(f"{len(search.results)}/{search.most} {trial.remedy}: {trial.why}", file=sys.stderr, flush=True)


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


def replay(name: str, table: dict[str, object], seed: int, hinted: bool, tpe: bool) -> tuple[float, int, int]:
    """Share of the best speed that the search found, trials, and points in all."""
    _, space = space_of(SPACES[name])
    rows = {tuple(row["point"]): row for row in table["points"] if row["log_speed"] is not None}  # type: ignore[attr-defined]
    draw = np.random.default_rng(seed)
    search = Search(space, seed=seed)
    if tpe:
        search._study.sampler = TPESampler(seed=seed, multivariate=True, n_startup_trials=3)
    if hinted:
        search.prefer(seeds(space, SPACES[name].hints))
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("do", nargs="?", default="replay", choices=["replay", "measure"])
    parser.add_argument("--only", choices=list(SPACES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tpe", action="store_true", help="let Optuna's TPE draw instead")
    parser.add_argument("--raw", action="store_true", help="take the best as measured for the best")
    args = parser.parse_args()
    tables = json.loads(TABLES.read_text()) if TABLES.exists() else {}
    names = [args.only] if args.only else list(SPACES)
    if args.do == "measure":
        for name in names:
            tables[name] = measure(name)
            TABLES.write_text(json.dumps(tables, indent=1) + "\n")
        return
    print(
        "| space | points | best | begins with | trials | found, median | 5th percentile | seeds at >= 95 % |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name in (each for each in names if each in tables):
        if not args.raw:
            smooth(tables[name])
        best = math.exp(max(row["log_speed"] or 0.0 for row in tables[name]["points"]))
        for hinted in (False, True):
            runs = [replay(name, tables[name], seed, hinted, args.tpe) for seed in range(args.seeds)]
            shares = [run[0] for run in runs]
            print(
                f"| {name} | {runs[0][2]} | {best:.2f}x | {'the diagnosis' if hinted else 'nothing'}"
                f" | {max(run[1] for run in runs)} | {statistics.median(shares):.1%}"
                f" | {float(np.quantile(shares, 0.05)):.1%}"
                f" | {sum(share >= 0.95 for share in shares)} of {len(shares)} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
