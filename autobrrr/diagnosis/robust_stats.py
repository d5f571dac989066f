"""Arithmetic that answers None instead of failing: measurements may be empty, zero or absurd."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Numbers = Sequence[int] | Sequence[float] | NDArray[np.int64]


def positive(value: float | None) -> float | None:
    """The value where it is a finite number above zero."""
    return value if value is not None and math.isfinite(value) and value > 0 else None


def unit_share(value: float | None) -> float | None:
    """The value cut to 0-1; None where it is no number."""
    return min(1.0, max(0.0, value)) if value is not None and math.isfinite(value) else None


def share_of(part: float | None, whole: float | None) -> float | None:
    """`part / whole`, cut to 0-1."""
    whole = positive(whole)
    if part is None or whole is None or not math.isfinite(part):
        return None
    return unit_share(part / whole)


def quantile(values: Numbers, q: float) -> float | None:
    """The quantile of a non-empty list of finite numbers."""
    if len(values) == 0:
        return None
    found = float(np.quantile(np.asarray(values, dtype=np.float64), q))
    return found if math.isfinite(found) else None


def median(values: Numbers) -> float | None:
    """The median of a non-empty list of finite numbers."""
    return quantile(values, 0.5)


def trimmed_mean(values: Numbers) -> tuple[float, float] | None:
    """The mean without the highest and the lowest tenth, and its standard error; None below two values.

    One step in ten may be interrupted: it would be most of a mean's error. The error is Yuen's, of the values
    with those cut off set to the nearest that is kept (Biometrika 61, 1974).
    """
    count = len(values)
    if count < 2:
        return None
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    cut = count // 10
    kept = ordered[cut : count - cut]
    deviation = float(np.std(np.clip(ordered, kept[0], kept[-1]), ddof=1))
    error = deviation / ((1 - 2 * cut / count) * math.sqrt(count))
    found = float(kept.mean())
    return (found, error) if math.isfinite(found) and math.isfinite(error) else None


def interquartile(values: Numbers) -> float | None:
    """Third quartile less the first."""
    low, high = quantile(values, 0.25), quantile(values, 0.75)
    return None if low is None or high is None else high - low


def spread(values: Numbers) -> float | None:
    """Interquartile range over the median: 0.1 = the middle half lies within 10 %."""
    width, middle = interquartile(values), positive(median(values))
    return None if width is None or middle is None else width / middle


def of_one(share: float) -> str:
    """A share in words: "71 %"."""
    return f"{100 * share:.0f} %"


def duration(ns: float) -> str:
    """Nanoseconds in words: "2.6 ms"."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.0f} ns"
