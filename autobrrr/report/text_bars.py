"""Parts of a bar, sparklines, columns, a curve of braille dots, intervals on an axis, as text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from autobrrr.report.page_model import LogScale
from autobrrr.report.text_rows import Piece, Row, piece

EIGHTHS = " ▁▂▃▄▅▆▇█"
DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))  # of one cell: left and right, from below
EMPTY = 0x2800


def cells_of(shares: Sequence[float], cells: int) -> list[int]:
    """So many cells divided by shares, exactly: the largest remainders get what is left over."""
    whole = sum(shares)
    if whole <= 0 or cells <= 0:
        return [0] * len(shares)
    exact = [part / whole * cells for part in shares]
    found = [int(each) for each in exact]
    order = sorted(range(len(shares)), key=lambda i: found[i] - exact[i])
    for index in order[: cells - sum(found)]:
        found[index] += 1
    return found


def flowed(pieces: Sequence[Piece], cells: int) -> list[Row]:
    """Pieces over as many rows as they need, two blanks between them; none for none."""
    lines: list[Row] = []
    used = cells  # so that the first piece begins a row
    for each in pieces:
        need = len(each[0])
        if used + 2 + need > cells:
            lines.append((each,))
            used = need
        else:
            lines[-1] += (piece("  "), each)
            used += 2 + need
    return lines


def sparkline(values: Sequence[float | None], cells: int) -> str:
    """The last values, one cell each; half to one and a half of the median, so that noise stays flat."""
    shown = list(values)[-cells:] if cells > 0 else []
    known = [value for value in shown if value is not None]
    if not known:
        return ""
    middle = statistics.median(known) or math.inf  # of no time all are the same
    eighths = [0 if value is None else max(1, min(8, round(8 * (value / middle - 0.5)))) for value in shown]
    return "".join(EIGHTHS[each] for each in eighths)


def columns(values: Sequence[float | None], height: int, high: float) -> list[str]:
    """Upright columns over several lines, top line first; `high` is the value at the top."""
    lines = []
    for level in range(height, 0, -1):
        line = ""
        for value in values:
            filled = 0.0 if value is None or high <= 0 else value / high * height - (level - 1)
            least = 1 if level == 1 and value else 0
            line += EIGHTHS[max(least, min(8, round(filled * 8)))]
        lines.append(line)
    return lines


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


def labels(placed: Sequence[tuple[int, str]], cells: int) -> str:
    """Words at their cells; what would touch an earlier one, or lies outside, is left out."""
    line = [" "] * cells
    for at, text in placed:
        start = min(at, cells - len(text))
        around = line[max(0, start - 1) : start + len(text) + 1]
        if at >= 0 and start >= 0 and not "".join(around).strip():
            line[start : start + len(text)] = text
    return "".join(line).rstrip()


def place(factor: float, scale: LogScale, cells: int) -> int:
    """The cell of a factor on an axis; the first or last where it lies beyond."""
    return round(scale.within(factor) * (cells - 1))


def whisker(value: float | None, interval: Sequence[float] | None, scale: LogScale, cells: int) -> str:
    """`  ├──●──┤ │  `: a factor and its interval; `│` stands where nothing changes."""
    if cells < 1:
        return ""
    line = [" "] * cells
    line[place(1.0, scale, cells)] = "│"
    if interval is not None:
        low, high = (place(bound, scale, cells) for bound in interval)
        for at in range(low, high + 1):
            line[at] = "┼" if line[at] == "│" else "─"
        line[low], line[high] = "├", "┤"
    if value is not None:
        line[place(value, scale, cells)] = "●"
    return "".join(line)
