"""Two ways of calling a module, timed against each other on copies before training uses the other one.

In: pairs of durations of one forward and backward, taken in turn. Out: what a call takes either way, and
within which bounds; a sentence where the other way is surely slower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median, stdev

Pair = tuple[float, float]  # nanoseconds of the plain way and of the other one

FEWEST_PAIRS = 4
MOST_PAIRS = 16
BUDGET_NS = 300_000_000  # beyond the fewest pairs
OF_COPIES = 0.05  # a call in the loop differs from one on copies by so much of itself (caches, memory)
T_95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)


@dataclass(frozen=True, slots=True)
class CallTimes:
    """Nanoseconds of one forward and backward; the bounds are the other way's."""

    plain_ns: float
    other_ns: float
    least_ns: float
    most_ns: float
    pairs: int

    @property
    def why_slower(self) -> str | None:
        """A sentence where even the lower bound is longer than the plain way; None where it is not."""
        if self.least_ns <= self.plain_ns:
            return None
        return (
            f"slower: forward and backward take {self.other_ns / 1e6:.3g} ms on copies, "
            f"{self.plain_ns / 1e6:.3g} ms as they are ({self.pairs} pairs, between "
            f"{self.least_ns / self.plain_ns:.2f} and {self.most_ns / self.plain_ns:.2f} times as long)"
        )


def enough(pairs: Sequence[Pair]) -> bool:
    """Whether no further pair is to be taken."""
    spent = sum(plain + other for plain, other in pairs)
    return len(pairs) >= MOST_PAIRS or (len(pairs) >= FEWEST_PAIRS and spent >= BUDGET_NS)


def call_times(pairs: Sequence[Pair]) -> CallTimes:
    """The typical call either way; of the ratio the 95 % interval of its mean logarithm.

    Args:
        pairs: At least two. Those that others disturbed lie far out: the ratios are held to the middle ones.
    """
    ratios = sorted(math.log(max(other, 1.0) / max(plain, 1.0)) for plain, other in pairs)
    cut = len(ratios) // 8
    held = [min(max(ratio, ratios[cut]), ratios[-1 - cut]) for ratio in ratios]
    half = T_95[min(len(held) - 1, len(T_95)) - 1] * stdev(held) / math.sqrt(len(held)) + OF_COPIES
    plain_ns, middle = median(plain for plain, _ in pairs), mean(held)
    return CallTimes(
        plain_ns=plain_ns,
        other_ns=plain_ns * math.exp(middle),
        least_ns=plain_ns * math.exp(middle - half),
        most_ns=plain_ns * math.exp(middle + half),
        pairs=len(pairs),
    )
