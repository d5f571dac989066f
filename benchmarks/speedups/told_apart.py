"""Real comparisons, as `prove` makes them: two that are the same, and one that is slower by a known share.

    python benchmarks/speedups/told_apart.py run [--percent 3] [--for 45] [--comparisons N] [JOB ...]
    python benchmarks/speedups/told_apart.py table
    python benchmarks/speedups/told_apart.py simulate

A comparison is the timed part of `prove`: fresh starts of three processes that take turns, its rule and its
looks, until it is decided or no start more fits into the seconds of `--for`. The slower side waits after each
update, on the processor, for that share of what the update took.
"""

from __future__ import annotations

import argparse
import collections
import functools
import itertools
import json
import math
import os
import random
import time
from collections.abc import Callable

import numpy as np
from false_verdicts import said_by
from timed_sides import ROOT, timed_sides

from autobrrr.prove.start_statistics import StartResult, StartRule
from autobrrr.prove.timed_turns import TimedTurns

RESULTS = ROOT / "benchmarks" / "results" / "told-apart.jsonl"
TABLE = RESULTS.with_suffix(".md")
JOBS = ("text", "slow_samples", "recomputed", "logging", "heads")
KEPT_DIGITS = 5
TRIES = 4000
Luck = Callable[[random.Random], list[float]]  # of before, of its twin, of after: log-ratios


def compare(job: str, percent: float, for_s: float) -> None:
    """Make one comparison and append what it found."""
    sides = (("slower_job.py", job, "0"), ("slower_job.py", job, str(percent)))
    began, load, rule = time.perf_counter(), os.getloadavg()[0], StartRule()
    with timed_sides(*sides) as (factory, before, after):
        turns = TimedTurns(factory=factory, before=before, after=after)
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


def simulate() -> None:
    """What the rule says of made-up luck: of two that are alike, and of one that is slower."""
    draw = random.Random(1)
    print(f"{'alike, luck':<28}{'told apart':>12}")
    for name, luck in LUCK.items():
        wrong = sum(found_by(luck, draw, 0.0, draw.randint(2, 8)) != "neither" for _ in range(TRIES))
        print(f"{name:<28}{wrong / TRIES:>12.2%}")
    print(f"\n{'slower by, starts, differ by':<28}{'caught':>12}")
    for slower, starts in ((0.03, 8), (0.01, 60)):
        for differ in (0.005, 0.01, 0.02, 0.04):
            luck = functools.partial(scaled, LUCK["normal"], differ)
            caught = sum(found_by(luck, draw, slower, starts) == "slower" for _ in range(TRIES // 10))
            print(f"{slower:<8.0%}{starts:<8}{differ:<12.1%}{caught / (TRIES // 10):>12.1%}")


def found_by(luck: Luck, draw: random.Random, slower: float, most: int) -> str:
    """Of one comparison; the processes of each start differ by luck."""
    rule, found = StartRule(), list[StartResult]()
    while True:
        before, twin, after = luck(draw)
        gain = after - (before + twin) / 2 + math.log1p(-slower)
        found.append(StartResult(gain=gain, luck=before - twin))
        if rule.is_over(found, is_last=len(found) == most):
            return said_by(rule)


def scaled(luck: Luck, by: float, draw: random.Random) -> list[float]:
    """The same luck, larger."""
    return [by * each for each in luck(draw)]


def alike(one: Callable[[random.Random], float]) -> Luck:
    """All processes have luck of the same kind."""
    return lambda draw: [one(draw) for _ in range(3)]


def by_start(draw: random.Random) -> list[float]:
    """Some starts are louder as a whole."""
    loud = draw.choice((0.3, 1.0, 1.0, 3.0))
    return [draw.gauss(0, loud) for _ in range(3)]


LUCK: dict[str, Luck] = {
    "normal": alike(lambda draw: draw.gauss(0, 1)),
    "Student's, 3 degrees": alike(
        lambda draw: draw.gauss(0, 1) / math.sqrt(sum(draw.gauss(0, 1) ** 2 for _ in range(3)) / 3)
    ),
    "Laplace": alike(lambda draw: draw.expovariate(1) * draw.choice((-1, 1))),
    "one in five five times": alike(lambda draw: draw.gauss(0, 5 if draw.random() < 0.2 else 1)),
    "some starts louder": by_start,
}


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
    parser.add_argument("what", choices=("run", "table", "simulate"))
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"of {', '.join(JOBS)}")
    parser.add_argument("--percent", type=float, default=0.0)
    parser.add_argument("--for", type=float, default=45.0, dest="for_s", metavar="SECONDS")
    parser.add_argument("--comparisons", type=int, default=len(JOBS))
    args = parser.parse_intermixed_args()
    if args.what == "table":
        table()
        return
    if args.what == "simulate":
        simulate()
        return
    for job in itertools.islice(itertools.cycle(args.jobs or JOBS), args.comparisons):
        compare(job, args.percent, args.for_s)


if __name__ == "__main__":
    main()
