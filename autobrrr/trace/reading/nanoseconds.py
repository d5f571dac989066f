"""Microseconds of a trace as exact integer nanoseconds.

In come durations as numbers and starts as their text; out go int64 columns, rounded half to even as
exact decimals are. Starts are never floats: a float64 of 1.7e15 us is off by up to 0.25 us.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation

import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

Nanoseconds = NDArray[np.int64]

MISSING = np.iinfo(np.int64).min  # no number, or none that can be read
_LIMIT_NS = 2**62
_MOST_DIGITS = 16  # of whole microseconds in 2**62 ns
# Numbers below 2**62 ns, a line each. Each line matches in one way only: else a failure would take for ever.
_US = rb"(?:[0-9]{1,15}|[0-3][0-9]{15})"
_WHOLE, _THREE_DECIMALS = re.compile(rb"(?:%b\n)*" % _US), re.compile(rb"(?:%b\.[0-9]{3}\n)*" % _US)
_UP_TO_THREE = re.compile(rb"(?:%b(?:\.[0-9]{1,3})?\n)*" % _US)
_DECIMALS = re.compile(rb"(?:\.([0-9]+))?\n")


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
    text = b"\n".join((*texts, b""))
    if _WHOLE.fullmatch(text):
        return 1000 * np.fromstring(text, np.int64, sep="\n")
    if _THREE_DECIMALS.fullmatch(text):
        digits = text.replace(b".", b"")
    elif _UP_TO_THREE.fullmatch(text):
        digits = _DECIMALS.sub(lambda found: (found[1] or b"").ljust(3, b"0") + b"\n", text)
    else:
        return np.fromiter((to_ns(bytes(each)) for each in texts), np.int64, len(texts))
    return np.fromstring(digits, np.int64, sep="\n")


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
