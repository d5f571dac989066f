"""How near do predicted gains come to achieved ones, and does the best remedy stand first in the advice?

    python -m benchmarks.verdict.predicted_gain [--for 70] [--case NAME]… [--only REMEDY]… [--into ROWS.jsonl]
        [--within SECONDS]

Planted jobs are diagnosed, then tuned while they run, as a user would: predictions and the advice's order are
of before anything was tried, the achieved gain is of the remedy's interleaved trial. Error:
|log(achieved / predicted)|. The best remedy of a job is the one with the highest gain among the proven ones
(lower bound over 1); jobs without one say nothing about the order. With `--into` a job that has a row of
these sources is not tuned again.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autobrrr.agent.remedies.families import REGISTRY
from benchmarks.planted.case import Case
from benchmarks.planted.diagnosed import SETTLE_S
from benchmarks.planted.held_out import HELD_OUT
from benchmarks.planted.job_process import (
    JobFailed,
    PlantedJob,
    adopt_orphans,
    end_descendants,
    own_folders,
    product,
)
from benchmarks.planted.load import LoadMeter
from benchmarks.planted.results import append, read, revision
from benchmarks.planted.tables.cases import CASES

JOBS = {case.name: case for case in (*CASES, *HELD_OUT)}
DIAGNOSED_S = 25.0  # at most, before the tuning
Row = dict[str, Any]


def tune(case: Case, for_s: float, only: Sequence[str], environment: Mapping[str, str]) -> Row:
    """Diagnose and tune one job that runs.

    Raises:
        JobFailed: it did not train, or could not be diagnosed or tuned.
    """
    meter = LoadMeter()
    over = {"seconds": int(2 * (for_s + DIAGNOSED_S) + 60)}
    with PlantedJob(case, environment=environment, over=over) as job:
        job.wait_for_training()
        time.sleep(SETTLE_S)
        advice = product(environment, "diagnose", str(job.pid))["advice"]
        words = ["tune", str(job.pid), "--for", f"{for_s:g}s", "--horizon", "4h"]
        tuning = product(environment, *words, *(["--only", ",".join(only)] if only else []))
    return {
        "case": case.name,
        "advice": [one["remedy"] for one in advice],
        "trials": tuning["trials"],
        "load": asdict(meter.read()),
    }


def line(case: str, trial: Row) -> str:
    """One row of the table."""
    achieved = "-" if trial["achieved"] is None else f"{trial['achieved']:.2f}x"
    bounds = "" if trial["interval"] is None else "{:.2f} to {:.2f}".format(*trial["interval"])
    predicted = "-" if trial["predicted"] is None else f"{trial['predicted']:.2f}x"
    off = error(trial)
    shown = "" if off is None else f"{math.expm1(off):.0%}"
    return (
        f"{case:<24}{trial['remedy']:<24}{predicted:>10}{achieved:>10}  {bounds:<16}{shown:>6}  "
        f"{trial['outcome']}{'' if trial['achieved'] is not None else ': ' + trial['why'][:60]}"
    )


def error(trial: Row) -> float | None:
    """|log(achieved / predicted)|; None where one of them is missing."""
    if trial["predicted"] is None or trial["achieved"] is None:
        return None
    return abs(math.log(trial["achieved"] / trial["predicted"]))


def stands(row: Row) -> int | None:
    """At which place of the advice, from 1, the best remedy stands; None where no remedy is proven.

    What was not tried is left out of the order: nobody measured whether it is better. A remedy that the
    advice doesn't name stands behind all it names.
    """
    proven = [one for one in row["trials"] if one["interval"] is not None and one["interval"][0] > 1.0]
    if not proven:
        return None
    best = max(proven, key=lambda one: float(one["achieved"]))["remedy"]
    tried = {one["remedy"] for one in row["trials"] if one["achieved"] is not None}
    order = [remedy for remedy in row["advice"] if remedy in tried]
    return order.index(best) + 1 if best in order else len(order) + 1


def summary(rows: Sequence[Row]) -> Row:
    """Errors as factors less 1; places among the jobs that have a best remedy."""
    errors = sorted(off for row in rows for trial in row["trials"] if (off := error(trial)) is not None)
    places = [place for row in rows if (place := stands(row)) is not None]
    return {
        "jobs": len(rows),
        "pairs": len(errors),
        "median_error": math.expm1(statistics.median(errors)) if errors else None,
        "p90_error": math.expm1(errors[math.ceil(0.9 * len(errors)) - 1]) if errors else None,
        "with_a_best": len(places),
        "first": sum(place == 1 for place in places),
        "among_three": sum(place <= 3 for place in places),
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--for", dest="for_s", type=float, default=70.0)
    parser.add_argument("--case", action="append", choices=list(JOBS))
    parser.add_argument("--only", action="append", choices=list(REGISTRY))
    parser.add_argument("--into", type=Path, help="file of the rows")
    parser.add_argument("--within", type=float, default=math.inf, help="start no further job after so long")
    args = parser.parse_args()
    until_s = time.monotonic() + args.within
    of = revision()
    rows = read(args.into, of)
    adopt_orphans()
    print(f"{'job':<24}{'remedy':<24}{'predicted':>10}{'achieved':>10}  {'interval':<16}{'off':>6}")
    for name in args.case or JOBS:
        if any(row["case"] == name for row in rows) or time.monotonic() > until_s:
            continue
        with own_folders() as environment:
            try:
                row = {**tune(JOBS[name], args.for_s, args.only or (), environment), "revision": of}
            except JobFailed as failed:
                print(f"{name:<24}failed: {failed}", flush=True)
                continue
            finally:
                end_descendants()
        rows.append(row)
        append(args.into, row)
        for trial in row["trials"]:
            print(line(name, trial), flush=True)
    print("\n" + json.dumps(summary(rows)))


if __name__ == "__main__":
    main()
