"""Does operator replay tell what twice the batch takes? Every planted job with a batch size, at B and at 2B.

    python -m benchmarks.verdict.operator_replay [--only PATTERN] [--within S]

Truth: one process runs the script at B and at 2B on two threads that take turns step by step; each counts by
its thread's CPU time, so that a busy machine lengthens both alike. Told: `batch_probe` of
`autobrrr attach --json` on the job at B. Rows go to `benchmarks/results/operator-replay.jsonl`.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any

from benchmarks.planted import results
from benchmarks.planted.case import Case
from benchmarks.planted.diagnosed import LIFE, SETTLE_S
from benchmarks.planted.held_out import HELD_OUT
from benchmarks.planted.job_process import (
    JobFailed,
    PlantedJob,
    adopt_orphans,
    end_descendants,
    own_folders,
)
from benchmarks.planted.tables.cases import CASES

WITHIN, MOST = 0.10, 0.30
WARM_PAIRS, LEAST_PAIRS, MOST_PAIRS = 3, 9, 60
PAIRS_S = 5.0
TRUTH_S = 90.0


def batch_of(case: Case) -> int | None:
    """B of a case, by its knobs or its script's own; None where the script has no such knob."""
    from benchmarks.planted import loop

    found: dict[str, Any] = {}
    given = loop.planted_job

    def noted(**knobs: Any) -> Any:
        found.update(knobs)
        return given(**knobs)

    loop.planted_job = noted
    try:
        module = importlib.import_module(case.module)
        importlib.reload(module)
    finally:
        loop.planted_job = given
    batch = {**found, **case.knobs}.get("batch") if "batch" in found else None
    return int(batch) if batch is not None else None


def truth(case: Case, batch: int, environment: Mapping[str, str]) -> float:
    """t(2B) / t(B) by steps in turns.

    Raises:
        JobFailed: the script can't be run twice in one process.
    """
    words = [sys.executable, "-m", "benchmarks.verdict.operator_replay", "--inside", case.module, str(batch)]
    try:
        done = subprocess.run(
            [*words, *case.words()],
            capture_output=True,
            text=True,
            timeout=TRUTH_S,
            check=False,
            env={**environment, **case.environment()},
        )
    except subprocess.TimeoutExpired:
        raise JobFailed("its pairs of steps take too long") from None
    if done.returncode:
        raise JobFailed(done.stderr[-300:])
    once, twice = json.loads(done.stdout.splitlines()[-1])
    return _quartile(twice) / _quartile(once)


def inside(module: str, batch: int, words: Sequence[str]) -> None:
    """Run a script at B and at 2B, a step of each in turns; print the thread's CPU time of each step."""
    from benchmarks.planted.loop import Loop

    turns = threading.Condition()
    state = {"turn": 0}
    spent: tuple[list[int], list[int]] = ([], [])
    me = threading.local()
    until = time.monotonic() + PAIRS_S

    def steps(_: Loop) -> Iterator[int]:
        for step in range(sys.maxsize):
            with turns:
                turns.wait_for(lambda: state["turn"] == me.number)
            began = time.thread_time_ns()
            yield step
            spent[me.number].append(time.thread_time_ns() - began)
            enough = step + 1 >= LEAST_PAIRS and time.monotonic() > until
            if me.number == 1 and (enough or step + 1 >= MOST_PAIRS):
                print("\n" + json.dumps([times[WARM_PAIRS:] for times in spent]), flush=True)
                os._exit(0)
            with turns:
                state["turn"] = 1 - me.number
                turns.notify_all()

    Loop.__iter__ = steps  # type: ignore[method-assign]
    main = importlib.import_module(module).main

    def run(number: int) -> None:
        me.number = number
        try:
            main([*words, "--batch", str(batch * (1 + number))])
        finally:
            os._exit(1)

    for number in (0, 1):
        threading.Thread(target=run, args=(number,)).start()


def told(case: Case, environment: Mapping[str, str], for_s: float) -> dict[str, Any]:
    """What the last snapshot of a watched job says of its batch."""
    with PlantedJob(case, environment=environment, over=LIFE) as job:
        job.wait_for_training()
        time.sleep(SETTLE_S)
        words = [sys.executable, "-m", "autobrrr", "attach", str(job.pid), "--foreground", "--json"]
        done = subprocess.run(
            [*words, "--for", f"{for_s:g}s"],
            capture_output=True,
            text=True,
            env=dict(environment),
            timeout=for_s + 90,
            check=False,
        )
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise JobFailed(done.stderr[-400:])
    probe: dict[str, Any] = json.loads(lines[-1])["batch_probe"]
    return probe


def row_of(case: Case, batch: int, environment: Mapping[str, str], for_s: float) -> dict[str, Any]:
    probe = told(case, environment, for_s)
    ratio, true = probe.get("ratio_2x"), truth(case, batch, environment)
    error = ratio / true - 1 if ratio is not None else None
    return {
        "case": case.name,
        "batch": batch,
        "told_batch": probe.get("batch"),
        "truth": true,
        "told": ratio,
        "why_not": probe.get("why"),
        "error": error,
    }


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """One sentence."""
    errors = [abs(row["error"]) for row in rows if row["error"] is not None]
    near, far = (sum(error <= limit for error in errors) for limit in (WITHIN, MOST))
    return (
        f"answered {len(errors)} of {len(rows)}; within {WITHIN:.0%} in {near}; "
        f"more than {MOST:.0%} off in {len(errors) - far}"
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", action="append", metavar="PATTERN")
    parser.add_argument("--for", dest="for_s", type=float, default=25.0, metavar="S")
    parser.add_argument("--within", type=float, metavar="S", help="start no further job after so long")
    parser.add_argument("--seed", type=int, default=7, help="of the order of the jobs")
    parser.add_argument("--out", type=Path, default=results.RESULTS / "operator-replay.jsonl")
    args = parser.parse_args(argv)
    adopt_orphans()
    about = {**results.machine(), "revision": results.revision()}
    until = time.monotonic() + args.within if args.within else float("inf")
    cases = [
        case
        for case in (*CASES, *HELD_OUT)
        if any(fnmatch.fnmatch(case.name, one) for one in args.only or "*")
    ]
    random.Random(args.seed).shuffle(cases)
    rows = []
    try:
        with own_folders() as environment:
            for case in cases:
                batch = batch_of(case)
                if batch is None or time.monotonic() > until:
                    continue
                try:
                    row = row_of(case, batch, environment, args.for_s)
                except JobFailed as failed:
                    print(f"{case.name}: {str(failed).strip().splitlines()[-1:]}", flush=True)
                    continue
                finally:
                    end_descendants()
                rows.append(row)
                results.append(args.out, {**row, **about})
                print(json.dumps(row), flush=True)
    finally:
        end_descendants()
    print(summary(rows))


def _quartile(times: Sequence[int]) -> float:
    return quantiles(times, n=4, method="inclusive")[0]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2], int(sys.argv[3]), sys.argv[4:])
    else:
        main()
