"""Steps of a benchmark job: some to warm up, then for a given time; prints how many a second."""

import argparse
import os
import time
from collections.abc import Iterator, Sequence

WARM_STEPS = 10


def arguments(kinds: Sequence[str] = ()) -> argparse.Namespace:
    """The flags that every job knows; `kind` where there are several."""
    parser = argparse.ArgumentParser()
    if kinds:
        parser.add_argument("kind", choices=kinds)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--steps", type=int, default=0, help="so many instead (ranks must agree)")
    return parser.parse_args()


def steps(args: argparse.Namespace) -> Iterator[int]:
    """Step numbers, until the time is up; prints the rate of the steps after the first few."""
    number = 0
    began = ends = time.perf_counter()
    while True:
        now = time.perf_counter()
        if number == WARM_STEPS:
            began, ends = now, now + args.seconds
        if number > WARM_STEPS and (number >= args.steps if args.steps else now >= ends):
            break
        yield number
        number += 1
    if os.environ.get("RANK", "0") == "0":
        print(f"rate {(number - WARM_STEPS) / (now - began):.4f}", flush=True)
