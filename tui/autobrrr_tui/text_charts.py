"""Charts in cells: a curve of braille dots, an interval on a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))  # of one cell: left and right, from below
EMPTY = 0x2800


def curve(values: Sequence[float | None], cells: int, height: int, top: float) -> list[str]:
    """The last values as a curve of dots, two columns of them a cell and four rows; the upper line first.

    Args:
        values: One a column of dots, the newest on the right; None leaves a hole.
        top: The value at the upper edge; what is larger is cut there.
    """
    columns = 2 * cells
    shown = [None] * max(0, columns - len(values)) + list(values)[max(0, len(values) - columns) :]
    dots = 4 * height
    levels = [
        None if value is None or top <= 0 else max(0, min(dots - 1, round(value / top * dots) - 1))
        for value in shown
    ]
    grid = [[EMPTY] * cells for _ in range(height)]
    before: int | None = None
    for column, level in enumerate(levels):
        if level is not None:
            reached = level if before is None else before + (level > before) - (level < before)
            for dot in range(min(level, reached), max(level, reached) + 1):
                grid[height - 1 - dot // 4][column // 2] |= DOTS[column % 2][dot % 4]
        before = level
    return ["".join(" " if bits == EMPTY else chr(bits) for bits in line) for line in grid]


def log_axis(factors: Sequence[float]) -> tuple[float, float]:
    """The ends of an axis that holds these factors and 1, with a tenth more on either side."""
    known = [factor for factor in factors if 0 < factor < math.inf]
    return min(0.8, *known, 1.0) / 1.1, max(1.25, *known, 1.0) * 1.1


def place(factor: float, ends: tuple[float, float], cells: int) -> int:
    """The cell of a factor on a logarithmic axis; the first or last where it lies beyond."""
    low, high = math.log(ends[0]), math.log(ends[1])
    if factor <= 0:
        return 0
    return min(cells - 1, max(0, round((math.log(factor) - low) / (high - low) * (cells - 1))))


def whisker(
    value: float | None, interval: Sequence[float] | None, ends: tuple[float, float], cells: int
) -> str:
    """`  ├──●──┤ │  `: a factor and its interval; `│` stands where nothing changes."""
    if cells < 1:
        return ""
    line = [" "] * cells
    line[place(1.0, ends, cells)] = "│"
    if interval is not None:
        low, high = (place(bound, ends, cells) for bound in interval)
        for at in range(low, high + 1):
            line[at] = "┼" if line[at] == "│" else "─"
        line[low], line[high] = "├", "┤"
    if value is not None:
        line[place(value, ends, cells)] = "●"
    return "".join(line)
