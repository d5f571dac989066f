"""Does operator replay tell what twice the batch takes? Every planted job with a batch size, at B and at 2B.

    python -m benchmarks.verdict.operator_replay [--only PATTERN] [--within S]

Truth: one process runs the script at B and at 2B on two threads in turns, step by step. A step counts by its
time less that in which its thread waited for a CPU, so that other programs count for little. Told: the
session of the job at B, until its probe has ended. Rows go to `benchmarks/results/operator-replay.jsonl`.
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
PAIRS_S = 3.0
TOLD_S, TRUTH_S = 25.0, 90.0


def batch_of(case: Case) -> int | None:
    """B of a case, by its knobs or its script's own; None where the script has no such knob."""
    batch = {**importlib.import_module(case.module).main.knobs, **case.knobs}.get("batch")
    return None if batch is None else int(batch)


def pairs(case: Case, batch: int, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    """A process that takes steps at B and at 2B as soon as its standard input ends; it imports meanwhile."""
    words = [sys.executable, "-m", "benchmarks.verdict.operator_replay", "--inside", case.module, str(batch)]
    return subprocess.Popen(
        [*words, *case.words()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment, **case.environment()},
    )


def truth(process: subprocess.Popen[str]) -> float:
    """t(2B) / t(B) by steps in turns.

    Raises:
        JobFailed: the script can't be run twice in one process.
    """
    try:
        out, errors = process.communicate("", timeout=TRUTH_S)
    except subprocess.TimeoutExpired:
        raise JobFailed("its pairs of steps take too long") from None
    if process.returncode:
        raise JobFailed(errors[-300:])
    once, twice = json.loads(out.splitlines()[-1])
    return _quartile(twice) / _quartile(once)


def inside(module: str, batch: int, words: Sequence[str]) -> None:
    """Run a script at B and at 2B, a step of each in turns; print what each step took."""
    from benchmarks.planted.loop import Loop

    turns = threading.Condition()
    state = {"turn": 0}
    spent: tuple[list[int], list[int]] = ([], [])
    me = threading.local()

    def steps(_: Loop) -> Iterator[int]:
        for step in range(sys.maxsize):
            with turns:
                turns.wait_for(lambda: state["turn"] == me.number)
            began = time.perf_counter_ns() - _delay_ns()
            yield step
            spent[me.number].append(time.perf_counter_ns() - _delay_ns() - began)
            enough = step + 1 >= LEAST_PAIRS and time.monotonic() > until
            if me.number == 1 and (enough or step + 1 >= MOST_PAIRS):
                print("\n" + json.dumps([times[WARM_PAIRS:] for times in spent]), flush=True)
                os._exit(0)
            with turns:
                state["turn"] = 1 - me.number
                turns.notify_all()

    Loop.__iter__ = steps  # type: ignore[method-assign]
    main = importlib.import_module(module).main
    sys.stdin.read()
    until = time.monotonic() + PAIRS_S

    def run(number: int) -> None:
        me.number = number
        try:
            main([*words, "--batch", str(batch * (1 + number))])
        finally:
            os._exit(1)

    for number in (0, 1):
        threading.Thread(target=run, args=(number,)).start()


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
    process = pairs(case, batch, environment)
    answer, true = told(case, environment), truth(process)
    error = answer["told"] / true - 1 if answer["told"] is not None else None
    row = {"case": case.name, "batch": batch, **answer, "truth": true, "error": error}
    return {**row, "seconds": round(time.monotonic() - began, 1)}


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
    about = {**results.machine(), "revision": results.revision()}
    until = time.monotonic() + args.within if args.within else float("inf")
    asked = args.only or "*"
    cases = [case for case in (*CASES, *HELD_OUT) if any(fnmatch.fnmatch(case.name, one) for one in asked)]
    random.Random(7).shuffle(cases)
    rows = []
    try:
        with own_folders() as environment:
            os.environ.update(environment)
            for case in cases:
                batch = batch_of(case)
                if batch is None or time.monotonic() > until:
                    continue
                try:
                    row = row_of(case, batch, environment)
                except (JobFailed, AutobrrrError) as failed:
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


def _delay_ns() -> int:
    """How long this thread has waited for a CPU."""
    return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1])


def _quartile(times: Sequence[int]) -> float:
    return quantiles(times, n=4, method="inclusive")[0]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2], int(sys.argv[3]), sys.argv[4:])
    else:
        main()
