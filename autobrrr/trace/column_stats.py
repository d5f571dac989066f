"""Middle and tail of a column. numpy's own median loads numpy.ma, which costs as much as reading 5 MB."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def quantile(column: NDArray[np.int64] | NDArray[np.float64], q: float) -> float:
    """The quantile of a non-empty column, interpolated linearly between neighbours."""
    ranked = np.sort(column)
    place = q * (len(ranked) - 1)
    low = int(place)
    high = min(low + 1, len(ranked) - 1)
    return float(ranked[low]) + (float(ranked[high]) - float(ranked[low])) * (place - low)


def median(column: NDArray[np.int64] | NDArray[np.float64]) -> float:
    """The middle of a non-empty column."""
    return quantile(column, 0.5)
