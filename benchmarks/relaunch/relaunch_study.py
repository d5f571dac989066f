"""What relaunched trials cost and find: time beyond the script's own start, a whole study, the search.

Three tables. Trials are real processes that train on the stand-in for torch and take `--start` seconds
to begin; the search is the product's own, on spaces whose every point is known.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from autobrrr.relaunch.search.param_specs import parse_parameter
from autobrrr.relaunch.search.point_search import Search
from autobrrr.relaunch.search.search_space import Point, Result, Space, make_space
from autobrrr.relaunch.study.study import Study
from autobrrr.relaunch.trial.trial_factory import TrialFactory
from support import relaunch
from support.relaunch import parameter as flag

ALL = ("bitwise", "rounding", "stream", "changes-training")


LIMITS = {"host-bound": 8, "loader-bound": 8, "memory-limited": 6}
SPACE = Space(parameters=(flag("--batch-size", 8, 2), flag("--workers", 5), flag("--threads", 4)))


def speed(kind: str, point: Point) -> float | None:
    """Samples a second of a simulated script; None: out of memory."""
    batch, workers, threads = (1 << at for at in point)
    if point[0] >= LIMITS[kind]:
        return None
    compute = 0.2 * batch / min(threads, 4) ** 0.7 + 0.4 * threads
    fixed = {"host-bound": 12.0, "loader-bound": 2.0, "memory-limited": 6.0}[kind]
    load = {"host-bound": 0.05, "loader-bound": 0.9, "memory-limited": 0.2}[kind] * batch
    crowd = 1 + 0.15 * max(0, workers + threads - 9)
    return batch / (max(fixed + compute, load / workers + 0.3 * workers) * crowd)


def searched(kind: str, seed: int) -> tuple[float, int, int]:
    """Share of the best that was found, trials, and how many of them ran out of memory."""
    draw = np.random.default_rng(seed)
    base = speed(kind, SPACE.base) or 1.0
    search = Search(SPACE, seed=seed)
    while (point := search.ask()) is not None:
        found = speed(kind, point)
        if found is None:
            search.tell(Result(point=point, value=None, kind="oom", why="out of memory"))
        else:
            value = math.log(found / base) + float(draw.normal(0, 0.01))
            search.tell(Result(point=point, value=value, kind="measured"))
    best = max(found for point in SPACE.points() if (found := speed(kind, point)) is not None)
    got = 0.0 if search.best is None else speed(kind, search.best.point) or 0.0
    return got / best, len(search.results), sum(result.kind == "oom" for result in search.results)


def study(folder: Path, start_s: float, trials: int) -> tuple[float, float, float, int]:
    """Seconds of the study, of its search, its ratio, trials: on a script that takes so long to start."""
    text = relaunch.SCRIPT.replace("import torch\n", f"time.sleep({start_s})\nimport torch\n", 1)
    file = relaunch.script(folder / "user", text)
    command = [sys.executable, str(file), "--mode", "slow"]
    env = relaunch.environment()
    specs = ("--num-workers=int:0..2", "--accumulate=int:1..4", "--slowness=choice:1,2")
    space = make_space([parse_parameter(spec, command, env, {}) for spec in specs], command, {}, ALL)
    began = time.perf_counter()
    marks: list[float] = []
    with TrialFactory(
        command=tuple(command),
        folder=file.parent,
        environment=env,
        runtime=folder / "run",
        cache=folder / "cache",
        space=space,
    ) as stable:
        course = Study(stable=stable, space=space, search=Search(space, trials=trials))
        from autobrrr.relaunch.study.study import Listener

        course.listener = Listener(on_trial=lambda trial: marks.append(time.perf_counter()))
        tuning, _ = course.run()
    return time.perf_counter() - began, marks[-1] - began, tuning.speedup, len(marks)


def overhead(folder: Path, start_s: float, walled: bool) -> tuple[float, float]:
    """Seconds of a trial beyond the script's own way to its first step: until it trains, and to end it."""
    text = relaunch.SCRIPT.replace("import torch\n", f"time.sleep({start_s})\nimport torch\n", 1)
    text = text.replace('print("training"', 'print("training", time.time()')
    file = relaunch.script(folder / "user", text)
    with TrialFactory(
        command=(sys.executable, str(file)),
        folder=file.parent,
        environment=relaunch.environment(),
        runtime=folder / "run",
        cache=folder / "cache",
        walled=walled,
    ) as stable:
        began = time.time()
        trial = stable.start()
        while not trial.lines or len(trial.lines[0].split()) < 2:
            trial.look()
            time.sleep(0.002)
        until_trains = float(trial.lines[0].split()[1]) - began - start_s
        ends = time.perf_counter()
        trial.close()
        return until_trains, time.perf_counter() - ends


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--start", type=float, default=3.0, help="seconds that the script takes to start")
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", choices=("cost", "study", "search"))
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.only in (None, "cost"):
            print("| walls | start beyond the script's own, median of 5 | to end it |\n|---|---|---|")
            for walled in (False, True):
                found = np.median([overhead(folder, 0.2, walled) for _ in range(5)], axis=0)
                print(f"| {'yes' if walled else 'no'} | {found[0]:.2f} s | {found[1]:.2f} s |", flush=True)
        if args.only in (None, "study"):
            whole, search, ratio, trials = study(folder, args.start, args.trials)
            print("\n| script starts in | trials | search | whole study | a trial | speed-up |")
            print("|---|---|---|---|---|---|")
            print(
                f"| {args.start:.0f} s | {trials} | {search:.0f} s | {whole:.0f} s | {search / trials:.1f} s"
                f" | {ratio:.2f}x |",
                flush=True,
            )
    if args.only in (None, "search"):
        print(
            f"\n| space of {len(SPACE.points())} points | worst share of the best | trials | out of memory |"
        )
        print("|---|---|---|---|")
        for kind in LIMITS:
            runs = [searched(kind, seed) for seed in range(args.seeds)]
            print(
                f"| {kind} | {min(run[0] for run in runs):.1%} | {max(run[1] for run in runs)}"
                f" | at most {max(run[2] for run in runs)} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
