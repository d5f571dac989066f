"""Values that traces write in various types, brought to one: ids, sizes, shares, durations."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from autobrrr.trace.reading import nanoseconds
from autobrrr.trace.reading.nanoseconds import MISSING
from autobrrr.trace.reading.trace_events import Label


def correlations(labels: Iterable[Label]) -> NDArray[np.int64]:
    """Positive ids; 0 for none."""
    listed = list(labels)
    try:
        found = np.array(listed)
        if found.dtype == np.int64:
            return np.asarray(np.maximum(found, 0), np.int64)
    except (OverflowError, ValueError):
        pass
    return np.array([max(whole(each, 0), 0) for each in listed], np.int64)


def whole(label: Label, otherwise: int) -> int:
    """A whole number, also from its text."""
    if isinstance(label, int):
        return label if abs(label) < 2**62 else otherwise
    try:
        value = int(label) if label is not None else otherwise
    except (TypeError, ValueError, OverflowError):
        return otherwise
    return value if abs(value) < 2**62 else otherwise


def duration_ns(us: float | None) -> int:
    """Nanoseconds of one duration; `MISSING` where there is none."""
    return MISSING if us is None else nanoseconds.to_ns(repr(us))
