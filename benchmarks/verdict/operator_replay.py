"""Does operator replay tell what twice the batch takes? Every planted job with a batch size, at B and at 2B.

    python -m benchmarks.verdict.operator_replay [--only PATTERN] [--within S]

Truth: two processes run the script, one at B and one at 2B, in turns, step by step. A step counts by its
time less that in which its thread waited for a CPU, so that other programs count for little. Told: the
session of the job at B, until its probe has ended. Rows go to `benchmarks/results/operator-replay.jsonl`.
"""

import argparse
import fnmatch
import importlib
import json
import os
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import autobrrr
from autobrrr.errors import AutobrrrError
from benchmarks.planted import results
from benchmarks.planted.case import Case
from benchmarks.planted.diagnosed import LIFE
from benchmarks.planted.held_out import HELD_OUT
from benchmarks.planted.job_process import JobFailed, PlantedJob, adopt_orphans, end_descendants, own_folders
from benchmarks.planted.stepped import SteppedJob
from benchmarks.planted.tables.cases import CASES

WITHIN, MOST = 0.10, 0.30
WARM_PAIRS, LEAST_PAIRS, MOST_PAIRS = 3, 9, 60
BLOCK = 8  # steps in a turn of a job with workers, which load meanwhile: the first half does not count
PAIRS_S = 3.0
TOLD_S = 40.0


def knobs_of(case: Case) -> dict[str, Any]:
    """All knobs of a case: its own, else its script's."""
    return {**importlib.import_module(case.module).main.knobs, **case.knobs}


def truth(once: SteppedJob, twice: SteppedJob, turn: int) -> float:
    """t(2B) / t(B) by steps in turns.

    Raises:
        JobFailed: the script does not run at 2B.
    """
    spent: list[tuple[float, float]] = []
    until = time.monotonic() + PAIRS_S
    while len(spent) < WARM_PAIRS + LEAST_PAIRS or (time.monotonic() < until and len(spent) < MOST_PAIRS):
        spent.append((_step_ns(once, turn), _step_ns(twice, turn)))
        if len(spent) == WARM_PAIRS:
            until = time.monotonic() + PAIRS_S
    return median(pair[1] for pair in spent[WARM_PAIRS:]) / median(pair[0] for pair in spent[WARM_PAIRS:])


def _step_ns(job: SteppedJob, turn: int) -> float:
    """The median step of a turn, its first half left out."""
    found = job.steps(turn)
    took = [wall - waited for wall, waited in zip(found["wall_ns"], found["waited_ns"], strict=True)]
    return median(took[turn // 2 :])


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


def row_of(case: Case, knobs: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    began, batch = time.monotonic(), int(knobs["batch"])
    once, twice = (SteppedJob(case, environment, {"batch": width}) for width in (batch, 2 * batch))
    with once, twice:  # they import meanwhile
        answer = told(case, environment)
        true = truth(once, twice, BLOCK if knobs.get("workers") else 1)
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
                knobs = knobs_of(case) if asked and time.monotonic() < until else {}
                if "batch" not in knobs:
                    continue
                try:
                    row = row_of(case, knobs, environment)
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


if __name__ == "__main__":
    main()
