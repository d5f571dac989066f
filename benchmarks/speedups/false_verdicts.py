"""How often would `prove` say "faster" or "slower" of two that are the same?

    python benchmarks/speedups/false_verdicts.py record [--starts N] [JOB ...]
    python benchmarks/speedups/false_verdicts.py judge [--comparisons N]

`record` times three processes of one job in turns, as `prove` does, and keeps the time of every step.
`judge` makes comparisons from them: starts are drawn with replacement, which of a start's three processes
is called `after` is drawn, and so are its rounds. The rule is that of `prove`, its looks included; after how
many starts the time is over is drawn too. "Faster" stands for an interval above 1: `prove` asks for more
before it says proven.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
from collections.abc import Sequence

import numpy as np
from timed_sides import ROOT, timed_sides

from autobrrr.prove.start_statistics import StartResult, StartRule
from autobrrr.prove.timed_turns import SIDES, Round, TimedTurns, start_result
from autobrrr.tuner.token_adjustment import TokenBlock

RESULTS = ROOT / "benchmarks" / "results" / "false-verdicts.jsonl"
TABLE = RESULTS.with_suffix(".md")
JOBS = {
    "text": ("text_job.py",),
    "slow samples": ("honest_speedups.py", "faster_samples", "before"),
    "logging": ("honest_speedups.py", "less_logging", "before"),
    "worker": ("honest_speedups.py", "loader_worker", "after"),
}
MOST_STARTS = 12
DRAWN_STARTS = 40  # of each recorded start as many are made, from its rounds
NONE = np.empty(0)


class Recorded(TimedTurns):
    """Keeps the turns of its last start."""

    rounds: Sequence[Round] = ()

    def _conclude(self, rounds: list[Round]) -> None:
        type(self).rounds = rounds
        super()._conclude(rounds)


def record(job: str, starts: int) -> None:
    """Append the turns of so many starts."""
    with timed_sides(JOBS[job], JOBS[job]) as (factory, before, after):
        turns = Recorded(factory=factory, before=before, after=after)
        for _ in range(starts):
            turns.start()
            rounds = [
                {side: (each[side].steps / 1e3).astype(int).tolist() for side in SIDES}
                for each in Recorded.rounds
            ]
            with RESULTS.open("a") as file:
                file.write(json.dumps({"job": job, "rounds_us": rounds}, separators=(",", ":")) + "\n")
            print(job, turns.results[-1:], os.getloadavg()[0], flush=True)


def drawn(rounds: Sequence[Round], draw: random.Random) -> StartResult | None:
    """A start as it might have been: other rounds, other names of its processes."""
    names = dict(zip(SIDES, draw.sample(SIDES, len(SIDES)), strict=True))
    chosen = draw.choices(rounds, k=len(rounds))
    return start_result([{side: each[name] for side, name in names.items()} for each in chosen])


def verdict(pool: Sequence[StartResult], most: int, draw: random.Random) -> str:
    """Of one comparison, with time for so many starts."""
    rule, found = StartRule(), []
    while True:
        found.append(draw.choice(pool))
        if rule.is_over(found, is_last=len(found) == most):
            break
    return said_by(rule)


def said_by(rule: StartRule) -> str:
    """By the interval as it was last looked at."""
    if rule.interval is None:
        return "too few starts"
    return "faster" if rule.interval.low > 0 else "slower" if rule.interval.high < 0 else "neither"


def share(count: int, of: int) -> str:
    """With Wilson's 95 % interval."""
    z, p = 1.96, count / of
    middle, half = p + z * z / (2 * of), z * (p * (1 - p) / of + z * z / (4 * of * of)) ** 0.5
    low, high = ((middle + sign * half) / (1 + z * z / of) for sign in (-1, 1))
    return f"{p:.3%} [{low:.3%}, {high:.3%}]"


def judge(comparisons: int) -> None:
    """Write the table."""
    draw = random.Random(0)
    kept = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    pools: dict[str, list[StartResult]] = collections.defaultdict(list)
    starts = collections.Counter(each["job"] for each in kept)
    for each in kept:
        rounds = [
            {
                side: TokenBlock(steps=np.array(us) * 1e3, counted=NONE, tokens=NONE)
                for side, us in turn.items()
            }
            for turn in each["rounds_us"]
        ]
        made = [drawn(rounds, draw) for _ in range(DRAWN_STARTS)]
        pools[each["job"]] += [found for found in made if found is not None]
    lines = [
        "# Verdicts on two that are the same\n",
        "Turns recorded on two cores that other programs used too; comparisons drawn from them by"
        " `false_verdicts.py`.\n",
        "| job | recorded starts | comparisons | faster | slower | spread of a start |",
        "|---|--:|--:|---|---|--:|",
    ]
    total: collections.Counter[str] = collections.Counter()
    for job, pool in pools.items():
        found = collections.Counter(
            verdict(pool, draw.randint(2, MOST_STARTS), draw) for _ in range(comparisons // len(pools))
        )
        total += found
        lines.append(_row(job, starts[job], found, float(np.std([each.gain for each in pool]))))
    lines.append(_row("all", len(kept), total, None))
    TABLE.write_text("\n".join(lines) + "\n")
    print(TABLE.read_text())


def _row(job: str, starts: int, found: collections.Counter[str], spread: float | None) -> str:
    count = found.total()
    said = " | ".join(share(found[each], count) for each in ("faster", "slower"))
    return f"| {job} | {starts} | {count} | {said} | {'' if spread is None else f'{spread:.3f}'} |"


def main() -> None:
    """Record, or judge what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("record", "judge"))
    parser.add_argument("jobs", nargs="*", metavar="JOB")
    parser.add_argument("--starts", type=int, default=8)
    parser.add_argument("--comparisons", type=int, default=100_000)
    args = parser.parse_intermixed_args()
    if args.what == "judge":
        judge(args.comparisons)
        return
    for job in args.jobs or JOBS:
        record(job, args.starts)


if __name__ == "__main__":
    main()
