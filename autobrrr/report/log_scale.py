"""A logarithmic axis: where a value lies between its ends, and which round values to mark."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LogScale:
    """From `low` to `high`, both above nothing."""

    low: float
    high: float

    def share(self, value: float) -> float:
        """0 at `low`, 1 at `high`."""
        return math.log(value / self.low) / math.log(self.high / self.low)

    def marks(self) -> list[float]:
        """Round values within: powers of ten; where they are few, their 2- and 5-fold too."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        steps = (1,) if math.log10(self.high / self.low) >= 3 else (1, 2, 5)
        found = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        return [value for value in found if self.low <= value <= self.high]


def around(values: Iterable[float], margin: float = 1.25) -> LogScale:
    """A scale that holds all values with some room at both ends.

    Raises:
        ValueError: no value, or one that has no logarithm.
    """
    found = list(values)
    if not found or min(found) <= 0:
        raise ValueError("a logarithmic scale needs values above nothing")
    return LogScale(low=min(found) / margin, high=max(found) * margin)
