"""Charts in characters: a log-log plot, a bar in eighths of a cell, a gain with its interval on an axis."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from autobrrr.report.log_scale import LogScale, around
from autobrrr.report.page_model import Chart

WIDTH = 79
MARKS = "o*x+"
_BLOCKS = " ▏▎▍▌▋▊▉█"


def plot(chart: Chart, *, width: int = WIDTH, height: int = 13) -> list[str]:
    """Lines of at most so many characters: a mark a series, joined by dots; nothing without points.

    Args:
        chart: Both of its axes are logarithmic; later series lie on top.
        width: Columns, with the names of values at the left.
        height: Rows of the drawing.
    """
    points = [point for each in chart.lines for point in each.points]
    if not points:
        return []
    across, up = around((point.x for point in points), 1.0001), around(point.y for point in points)
    left = max((len(chart.name_y(value)) for value in up.marks()), default=0) + 2
    width -= left + 1

    def row(value: float) -> int:
        return round((1 - up.within(value)) * (height - 1))

    def column(value: float) -> int:
        return round(across.within(value) * (width - 1))

    grid = [[" "] * width for _ in range(height)]
    marks = dict(zip((each.name for each in chart.lines), MARKS * len(chart.lines), strict=False))
    for each in chart.lines:
        cells = [(column(point.x), row(point.y)) for point in each.points]
        for (x, y), (far, end) in pairwise(cells):
            for at in range(x + 1, far):
                level = round(y + (end - y) * (at - x) / (far - x))
                grid[level][at] = "·" if grid[level][at] == " " else grid[level][at]
    for each in chart.lines:
        for point in each.points:
            grid[row(point.y)][column(point.x)] = marks[each.name]
    names = {row(value): chart.name_y(value) for value in up.marks()}
    lines = [f"{names.get(at, ''):>{left - 1}} │{''.join(cells)}".rstrip() for at, cells in enumerate(grid)]
    legend = "   ".join(f"{mark} {name}" for name, mark in marks.items())
    axis = labels([(column(x), f"{x:g}") for x in sorted({point.x for point in points})], width)
    room = " " * (left + 1)
    return [*lines, f"{'└':>{left + 1}}{'─' * width}", room + axis, room + legend]


def labels(placed: Sequence[tuple[int, str]], cells: int) -> str:
    """Words at their cells; what would touch an earlier one is left out."""
    line, free = "", 0
    for wanted, text in placed:
        at = min(wanted, cells - len(text))
        if at >= free:
            line, free = f"{line:<{at}}{text}", at + len(text) + 1
    return line


def share_bar(share: float, cells: int) -> str:
    """A share as a bar, in eighths of a cell."""
    whole, part = divmod(round(max(0.0, min(1.0, share)) * cells * 8), 8)
    return "█" * whole + (_BLOCKS[part] if part else "")


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
