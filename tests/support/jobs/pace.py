"""How a test's training job meets its test: it says when it trains, and ends when it is told to.

A job trains `--steps` steps, or, with `--until FILE`, until that file exists. It prints
`training` after its third step, and at the end `steps N` and `fingerprint HEX`. With `--every N`
it ends at a multiple of N steps only, and with `--tell` it prints `told STEP HEX` at each of them.
Some jobs rest after each step, as other tests want the core; not where `--busy` or `--tell` is given.
"""

import argparse
import os
import random
import time
from collections.abc import Callable, Iterator

import numpy
import torch


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--until", default="")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--tell", action="store_true")
    parser.add_argument("--busy", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(7)
    random.seed(7)
    numpy.random.seed(7)
    return args


def steps(args: argparse.Namespace, fingerprint: Callable[[], str] = str, rest_s: float = 0) -> Iterator[int]:
    """Step numbers; says `training` once the third step has ended. `fingerprint` is for `--tell`."""
    number = 0
    while number < args.steps if args.steps else number % args.every or not os.path.exists(args.until):
        yield number
        number += 1
        if args.tell and number % args.every == 0:
            print("told", number, fingerprint(), flush=True)
        if number == 3:
            print("training", flush=True)
        if rest_s and not (args.busy or args.tell):
            time.sleep(rest_s)
    print("steps", number, flush=True)
