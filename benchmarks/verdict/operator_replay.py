"""Does operator replay tell what twice the batch takes? Every planted job with a batch size, at B and at 2B.

    python -m benchmarks.verdict.operator_replay [--only PATTERN] [--within S]

Truth: two processes run the script, one at B and one at 2B, in turns, step by step. A step counts by its
time less that in which its thread waited for a CPU, so that other programs count for little. Told: the
session of the job at B, until its probe has ended. Rows go to `benchmarks/results/operator-replay.jsonl`.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import importlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import autobrrr
from autobrrr.errors import AutobrrrError
from benchmarks.planted import results
from benchmarks.planted.case import Case
from benchmarks.planted.diagnosed import LIFE
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
BLOCK = 8  # steps in a turn of a job with workers, which load meanwhile: the first half does not count
PAIRS_S = 3.0
TOLD_S = 40.0
TOOK = "took "


def batch_of(case: Case) -> int | None:
    """B of a case, by its knobs or its script's own; None where the script has no such knob."""
    batch = {**importlib.import_module(case.module).main.knobs, **case.knobs}.get("batch")
    return None if batch is None else int(batch)


def stepper(case: Case, batch: int, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    """A process that takes steps at this batch for each line it gets, and tells what one took."""
    words = [sys.executable, "-m", "benchmarks.verdict.operator_replay", "--inside", case.module]
    return subprocess.Popen(
        [*words, *case.words({"batch": batch})],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**environment, **case.environment()},
    )


def truth(once: subprocess.Popen[str], twice: subprocess.Popen[str]) -> float:
    """t(2B) / t(B) by steps in turns.

    Raises:
        JobFailed: the script does not run at 2B.
    """
    spent: list[tuple[float, float]] = []
    until = time.monotonic() + PAIRS_S
    while len(spent) < WARM_PAIRS + LEAST_PAIRS or (time.monotonic() < until and len(spent) < MOST_PAIRS):
        spent.append((_step_ns(once), _step_ns(twice)))
        if len(spent) == WARM_PAIRS:
            until = time.monotonic() + PAIRS_S
    return median(pair[1] for pair in spent[WARM_PAIRS:]) / median(pair[0] for pair in spent[WARM_PAIRS:])


def _step_ns(process: subprocess.Popen[str]) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        print(file=process.stdin, flush=True)
    for line in process.stdout:
        if line.startswith(TOOK):
            return float(line.removeprefix(TOOK))
    raise JobFailed("the script does not run at one of the batch sizes")


def inside(module: str, words: Sequence[str]) -> None:
    """Run a script; a turn of steps for each line of input."""
    from benchmarks.planted.loop import Loop

    def steps(_: Loop) -> Iterator[int]:
        spent: list[int] = []
        while sys.stdin.readline():
            for _turn in range(block):
                began = time.perf_counter_ns() - _delay_ns()
                yield len(spent)
                spent.append(time.perf_counter_ns() - _delay_ns() - began)
            print(f"\n{TOOK}{median(spent[-block // 2 :])}", flush=True)

    Loop.__iter__ = steps  # type: ignore[method-assign]
    main = importlib.import_module(module).main
    block = BLOCK if "--workers" in words or main.knobs.get("workers") else 1
    main(words)


def told(case: Case, environment: Mapping[str, str]) -> dict[str, Any]:
    """What a session says of its job's batch once the replay has ended, or after TOLD_S."""
    with PlantedJob(case, environment=environment, over=LIFE) as job:
        job.wait_for_training()
        until = time.monotonic() + TOLD_S
        with autobrrr.attach(job.pid) as session:
            while True:
                found, replayed = session.snapshot(), _probed(environment, job.pid)
                probe = found.batch_probe
                taken = replayed and (probe.points or probe.why == replayed["why"])
                if taken or found.state == "judged" or time.monotonic() > until:
                    break
                time.sleep(0.2)
    return {
        "told_batch": probe.batch,
        "told": probe.ratio_2x,
        "why_not": probe.why,
        "notes": replayed.get("notes", []),
        "pauses_s": (found.cost.one_off_ns or 0) / 1e9,
    }


def _probed(environment: Mapping[str, str], pid: int) -> dict[str, Any]:
    """The replay's own answer in the session's log; empty where there is none yet."""
    for log in Path(environment["XDG_STATE_HOME"], "autobrrr", "sessions").glob(f"*-{pid}.jsonl"):
        for line in log.read_text(encoding="utf-8").splitlines():
            if '"probed"' in line and (entry := json.loads(line))["kind"] == "probed":
                return dict(entry["body"]["probed"])
    return {}


def row_of(case: Case, batch: int, environment: Mapping[str, str]) -> dict[str, Any]:
    began = time.monotonic()
    once, twice = (stepper(case, width, environment) for width in (batch, 2 * batch))  # they import meanwhile
    answer, true = told(case, environment), truth(once, twice)
    error = answer["told"] and answer["told"] / true - 1
    seconds = round(time.monotonic() - began, 1)
    return {"case": case.name, "batch": batch, **answer, "truth": true, "error": error, "seconds": seconds}


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """One sentence."""
    errors = [abs(row["error"]) for row in rows if row["error"] is not None]
    near, far = (sum(error <= limit for error in errors) for limit in (WITHIN, MOST))
    paused_s = max((row["pauses_s"] for row in rows), default=0.0)
    return (
        f"answered {len(errors)} of {len(rows)}; within {WITHIN:.0%} in {near}; "
        f"more than {MOST:.0%} off in {len(errors) - far}; training paused for {paused_s:.2f} s at most"
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", action="append", metavar="PATTERN")
    parser.add_argument("--within", type=float, metavar="S", help="start no further job after so long")
    parser.add_argument("--out", type=Path, default=results.RESULTS / "operator-replay.jsonl")
    args = parser.parse_args(argv)
    adopt_orphans()
    until = time.monotonic() + args.within if args.within else float("inf")
    cases = [*CASES, *HELD_OUT]
    random.Random(7).shuffle(cases)
    rows = []
    try:
        with own_folders() as environment:
            os.environ.update(environment)
            for case in cases:
                asked = any(fnmatch.fnmatch(case.name, one) for one in args.only or "*")
                batch = batch_of(case) if asked and time.monotonic() < until else None
                if batch is None:
                    continue
                try:
                    row = row_of(case, batch, environment)
                except (JobFailed, AutobrrrError) as failed:
                    print(f"{case.name}: {str(failed).strip().splitlines()[-1:]}", flush=True)
                    continue
                finally:
                    end_descendants()
                rows.append(row)
                results.append(args.out, {**row, **results.machine(), "revision": results.revision()})
                print(json.dumps(row), flush=True)
    finally:
        end_descendants()
    print(summary(rows))


def _delay_ns() -> int:
    """How long this thread has waited for a CPU."""
    return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2], sys.argv[3:])
    else:
        main()
