"""Real comparisons, as `prove` makes them: two that are the same, and one that is slower by a known share.

    python benchmarks/speedups/told_apart.py run [--percent 3] [--for 45] [--comparisons N] [JOB ...]
    python benchmarks/speedups/told_apart.py table

A comparison is the timed part of `prove`: fresh starts of three processes that take turns, its rule and its
looks, until it is decided or no start more fits into the seconds of `--for`. The slower side waits after each
update, on the processor, for that share of what the update took.
"""

import argparse
import collections
import itertools
import json
import os
import time

import numpy as np
from timed_sides import ROOT, timed_sides

from autobrrr.relaunch.study.start_statistics import StartRule

RESULTS = ROOT / "benchmarks" / "results" / "told-apart.jsonl"
TABLE = RESULTS.with_suffix(".md")
JOBS = ("text", "slow_samples", "logging")
KEPT_DIGITS = 5


def compare(job: str, percent: float, for_s: float) -> None:
    """Make one comparison and append what it found."""
    sides = (("slower_job.py", job, "0"), ("slower_job.py", job, str(percent)))
    began, load, rule = time.perf_counter(), os.getloadavg()[0], StartRule()
    with timed_sides(*sides) as turns:
        while True:
            turns.start()
            taken_s = time.perf_counter() - began
            is_last = taken_s * (1 + 1 / max(1, len(turns.results))) > for_s
            if rule.is_over(turns.results, is_last=is_last) or taken_s > 2 * for_s:
                break
    found = {
        "job": job,
        "percent": percent,
        "for_s": for_s,
        "taken_s": round(time.perf_counter() - began, 1),
        "load": round((load + os.getloadavg()[0]) / 2, 2),
        "verdict": said_by(rule),
        "starts": [[round(each.gain, KEPT_DIGITS), round(each.luck, KEPT_DIGITS)] for each in turns.results],
    }
    with RESULTS.open("a") as file:
        file.write(json.dumps(found, separators=(",", ":")) + "\n")
    print(found, flush=True)


def said_by(rule: StartRule) -> str:
    """By the interval as it was last looked at."""
    if rule.interval is None:
        return "too few starts"
    return "faster" if rule.interval.low > 0 else "slower" if rule.interval.high < 0 else "neither"


def table() -> None:
    """Write what was found; a comparison that had no time for two starts found nothing."""
    rows = collections.defaultdict(list)
    for line in RESULTS.read_text().splitlines():
        each = json.loads(line)
        if each["verdict"] != "too few starts":
            rows[(each["percent"], each["job"])].append(each)
            rows[(each["percent"], "all")].append(each)
    lines = [
        "# Told apart\n",
        "Comparisons of real processes by `told_apart.py`, on two cores that other programs used, too (median"
        " load in the last column but one). Spread: standard deviation of a start's ratio.\n",
        "| slower by | job | count | starts | median s | ≤ 45 s | faster | slower | load | spread |",
        "|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for (percent, job), found in sorted(rows.items(), key=lambda row: (row[0][0], row[0][1] == "all")):
        said = [sum(each["verdict"] == word for each in found) for word in ("faster", "slower")]
        gains = [gain for each in found for gain, _ in each["starts"]]
        taken_s = [each["taken_s"] for each in found]
        lines.append(
            f"| {percent:g} % | {job} | {len(found)} | {len(gains)} | {np.median(taken_s):.0f} |"
            f" {sum(each <= 45 for each in taken_s)} | {said[0]} | {said[1]} |"
            f" {np.median([each['load'] for each in found]):.1f} | {np.std(gains):.3f} |"
        )
    TABLE.write_text("\n".join(lines) + "\n")
    print(TABLE.read_text())


def main() -> None:
    """Compare, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"of {', '.join(JOBS)}")
    parser.add_argument("--percent", type=float, default=0.0)
    parser.add_argument("--for", type=float, default=45.0, dest="for_s", metavar="SECONDS")
    parser.add_argument("--comparisons", type=int, default=len(JOBS))
    args = parser.parse_intermixed_args()
    if args.what == "table":
        table()
        return
    for job in itertools.islice(itertools.cycle(args.jobs or JOBS), args.comparisons):
        compare(job, args.percent, args.for_s)


if __name__ == "__main__":
    main()
