"""Microseconds of a trace as exact integer nanoseconds.

In come durations as numbers and starts as their text; out go int64 columns, rounded half to even as
exact decimals are. Starts are never floats: a float64 of 1.7e15 us is off by up to 0.25 us.
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


def from_numbers(values: Sequence[float | None]) -> Nanoseconds:
    """Nanoseconds of decoded numbers, which are durations: short enough for a float to hold them exactly.

    Args:
        values: None where the event has no such field, which becomes `MISSING`, as does what is out of range.
    """
    ns = np.array(values, np.float64) * 1000
    known = np.abs(ns) < _LIMIT_NS
    return np.where(known, np.rint(np.where(known, ns, 0)), MISSING).astype(np.int64)


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
