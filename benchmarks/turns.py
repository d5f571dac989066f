"""Two ways to do one thing, in turn (A B B A …), and what their pairs say.

In: what runs each way. Out: the mean over pairs with Student's 95 % interval.
"""

import math
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.stats import ttest_1samp

from benchmarks import ROOT

T = TypeVar("T")


def in_turn(pairs: int, before: Callable[[], T], after: Callable[[], T]) -> list[tuple[T, T]]:
    """What each pair of runs gave."""
    found = []
    for pair in range(pairs):
        ways = (before, after) if pair % 2 == 0 else (after, before)
        gave = {way: way() for way in ways}
        found.append((gave[before], gave[after]))
    return found


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean, and its 95 % interval."""
    around = ttest_1samp(values, 0.0).confidence_interval(0.95)
    return float(np.mean(values)), float(around.low), float(around.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """How many times as fast, and both rates."""

    factor: float
    low: float
    high: float
    before: float = math.nan
    after: float = math.nan

    def __str__(self) -> str:
        return f"{self.factor:.2f} ({self.low:.2f} to {self.high:.2f})"

    def agrees(self, other: "Gain") -> bool:
        """Whether two measurements of one gain differ by no more than both intervals together allow."""
        halves = (math.log(each.high / each.low) / 2 for each in (self, other))
        return abs(math.log(self.factor / other.factor)) <= math.hypot(*halves)


def gain(pairs: int, before: Callable[[], float], after: Callable[[], float]) -> Gain:
    """The ratio of rates that jobs say of themselves."""
    rates = in_turn(pairs, before, after)
    factor, low, high = map(math.exp, mean_interval([math.log(new / old) for old, new in rates]))
    old, new = np.median(rates, axis=0).tolist()
    return Gain(factor=factor, low=low, high=high, before=old, after=new)


def rate(words: Sequence[str], env: Mapping[str, str]) -> float:
    """Run one job of `jobs` to its end; the rate that it prints.

    Raises:
        RuntimeError: it failed.
    """
    done = subprocess.run(words, env=dict(env), capture_output=True, text=True, cwd=ROOT, check=False)
    found = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("rate ")]
    if done.returncode or not found:
        raise RuntimeError(f"{' '.join(words)}: {done.stdout[-500:]}{done.stderr[-1500:]}")
    return float(found[0])
