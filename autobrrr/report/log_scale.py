"""A logarithmic axis: where a value lies between its ends, and which round values to mark."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

LEAST_SPAN = 1.1  # an axis of gains shows at least this factor to both sides
FARTHEST = 20.0  # an interval that leaves it ends in an arrow
TICKS = (0.05, 0.1, 0.2, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0)
APART = 0.09  # of the axis, between two ticks


@dataclass(frozen=True, slots=True, kw_only=True)
class LogScale:
    """From `low` to `high`, both above nothing."""

    low: float
    high: float

    def share(self, value: float) -> float:
        """0 at `low`, 1 at `high`."""
        return math.log(value / self.low) / math.log(self.high / self.low)

    def within(self, value: float) -> float:
        """The same, 0 or 1 for what lies beyond."""
        return 0.0 if value <= self.low else 1.0 if value >= self.high else self.share(value)

    def marks(self) -> list[float]:
        """Round values within: powers of ten; where they are few, their 2- and 5-fold too."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        steps = (1,) if math.log10(self.high / self.low) >= 3 else (1, 2, 5)
        found = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        return [value for value in found if self.low <= value <= self.high]

    def factors(self, apart: float = APART) -> list[float]:
        """Round factors on an axis of gains, 1 first; no two nearer than that share of the axis."""
        kept: list[float] = []
        for tick in sorted(
            (each for each in TICKS if self.low <= each <= self.high), key=lambda one: one != 1
        ):
            if all(abs(self.share(tick) - self.share(other)) > apart for other in kept):
                kept.append(tick)
        return kept


def around(values: Iterable[float], margin: float = 1.25) -> LogScale:
    """A scale that holds all values with some room at both ends.

    Raises:
        ValueError: no value, or one that has no logarithm.
    """
    found = list(values)
    if not found or min(found) <= 0:
        raise ValueError("a logarithmic scale needs values above nothing")
    return LogScale(low=min(found) / margin, high=max(found) * margin)


def gain_scale(values: Iterable[float]) -> LogScale:
    """Around 1, with room at both ends."""
    inside = [min(max(value, 1 / FARTHEST), FARTHEST) for value in values]
    return LogScale(
        low=min([1 / LEAST_SPAN, *(value / 1.03 for value in inside)]),
        high=max([LEAST_SPAN, *(value * 1.03 for value in inside)]),
    )
