"""Microseconds of a trace as exact integer nanoseconds.

In come the numbers of a batch of events, decoded as int or float, or their text; out go int64
columns, rounded half to even as exact decimals are. Floats are used only where they provably
give the same: a float64 of 1.7e15 us is off by up to 0.25 us.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation

import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

Nanoseconds = NDArray[np.int64]

MISSING = np.iinfo(np.int64).min  # no number, or none that can be read
_LIMIT_NS = 2**62
_MOST_DIGITS = 16  # of whole microseconds in 2**62 ns

# Below 2**42 us a float64 stands at most 0.25 ns beside its text, so that rounding can't go astray
# unseen: a wrong result would lie further from the float than the float can from its text.
_PROVEN_BELOW = 2.0**42


def from_numbers(values: Sequence[float | None]) -> Nanoseconds | None:
    """Nanoseconds of decoded numbers; None where numbers can't prove them.

    Args:
        values: ints, floats, or None where the event has no such field (becomes `MISSING`).
    """
    if not values:
        return np.empty(0, np.int64)
    if set(map(type, values)) == {int}:
        try:
            whole = np.fromiter(values, np.int64, len(values))
        except OverflowError:
            return None
        return np.asarray(whole * 1000, np.int64) if int(np.abs(whole).max()) < _LIMIT_NS // 1000 else None
    us = np.array(values, np.float64)
    absent = np.isnan(us)
    missing = bool(absent.any())
    if missing:
        us = np.where(absent, 0.0, us)
    largest = float(np.abs(us).max())
    if not largest < _PROVEN_BELOW:
        return None
    scaled = us * 1000
    nearest = np.rint(scaled)
    found = np.asarray(nearest, np.int64)
    slack = np.spacing(largest) * 500 + np.spacing(largest * 1000) * 0.5
    for index in np.flatnonzero(np.abs(scaled - nearest) > slack).tolist():
        # More than three decimals. Up to 15 digits, the shortest text of a float is the file's own.
        if abs(us[index]) >= 1e8:
            return None
        found[index] = to_ns(repr(float(us[index])))
    if missing:
        found[absent] = MISSING
    return found


def from_texts(texts: Sequence[Raw]) -> Nanoseconds:
    """Nanoseconds of numbers as they stand in the file; an empty text becomes `MISSING`."""
    found = np.full(len(texts), MISSING, np.int64)
    if not texts:
        return found
    text = np.frombuffer(b"\n".join(texts) + b"\n", np.uint8)
    ends = np.flatnonzero(text == 0x0A)
    if len(ends) != len(texts):
        return np.fromiter((to_ns(bytes(each)) for each in texts), np.int64, len(texts))
    starts = np.concatenate(([0], ends[:-1] + 1))
    dots = np.flatnonzero(text == 0x2E)
    point = ends.copy()
    point[np.searchsorted(ends, dots)] = dots
    odd = np.flatnonzero((text != 0x2E) & (text != 0x0A) & ((text < 0x30) | (text > 0x39)))
    plain = ends > starts
    plain[np.searchsorted(ends, odd)] = False
    # Numbers of one layout (length, place of the point) are read together, a digit at a time.
    layout = np.where(plain, (ends - starts) * 64 + (point - starts), -1)
    for key in np.flatnonzero(np.bincount(layout + 1)) - 1:
        chosen = np.flatnonzero(layout == key)
        size, whole = divmod(int(key), 64)
        decimals = max(size - whole - 1, 0)
        if key < 0 or size > 18 or decimals > 3:
            for index in chosen.tolist():
                found[index] = to_ns(bytes(texts[index]))
            continue
        first = starts[chosen]
        total = np.zeros(len(chosen), np.int64)
        for place in range(size):
            if place != whole:
                total = total * 10 + (text[first + place] - np.uint8(0x30))
        scale = 10 ** (3 - decimals)
        found[chosen] = np.where(total <= (_LIMIT_NS - 1) // scale, total * scale, MISSING)
    return found


def to_ns(text: bytes | str) -> int:
    """Nanoseconds of one number of microseconds, quoted or not; `MISSING` where it is none."""
    plain = text.decode("ascii", "replace") if isinstance(text, bytes) else text
    try:
        us = Decimal(plain.strip().strip('"'))
    except InvalidOperation:
        return MISSING
    if not us.is_finite() or us.adjusted() >= _MOST_DIGITS:  # 1e300000 would make an int of as many
        return MISSING
    whole = int((us * 1000).to_integral_value(ROUND_HALF_EVEN))
    return whole if abs(whole) < _LIMIT_NS else MISSING
