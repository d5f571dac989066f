"""FLOP/s of square matmuls against their size, and what the curve says of a matmul of any shape."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

from autobrrr.records import Record


class MatmulPoint(Record, frozen=True, kw_only=True):
    """A square matmul: n x n times n x n is 2 n^3 FLOPs."""

    n: int
    flops: float  # FLOP/s


def flops_at(curve: Sequence[MatmulPoint], m: int, n: int, k: int) -> float | None:
    """FLOP/s of the square matmul that does as much work as (m x k) times (k x n).

    Interpolated on both logarithms, constant beyond the ends. A skinny matmul is held against the
    square one of its volume: what it stays below is the price of its shape.

    Args:
        curve: At least one point, in rising order of n.
        m: Rows of the left factor.
        n: Columns of the right factor.
        k: What both share.
    """
    if not curve or min(m, n, k) <= 0:
        return None
    size = (float(m) * n * k) ** (1 / 3)
    above = bisect_left([point.n for point in curve], size)
    if above == 0:
        return curve[0].flops
    if above == len(curve):
        return curve[-1].flops
    low, high = curve[above - 1], curve[above]
    along = math.log(size / low.n) / math.log(high.n / low.n)
    return math.exp((1 - along) * math.log(low.flops) + along * math.log(high.flops))
