"""A log-log plot in characters: one mark a series, joined by dots, values named at the left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autobrrr.report.log_scale import LogScale, around

LEFT = 12  # columns of the names of values


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points in rising order of x; both coordinates above nothing."""

    name: str
    mark: str
    points: Sequence[tuple[float, float]]


def plot(
    series: Sequence[Series], name_y: Callable[[float], str], *, width: int = 64, height: int = 13
) -> list[str]:
    """Lines of at most LEFT + width characters; nothing without points.

    Args:
        series: What is drawn; later ones lie on top.
        name_y: A value of the vertical axis in words.
        width: Columns of the drawing.
        height: Rows of it.
    """
    points = [point for each in series for point in each.points]
    if not points:
        return []
    across, up = around((x for x, _ in points), 1.0001), around(y for _, y in points)
    grid = [[" "] * width for _ in range(height)]
    for each in series:
        for begin, end in zip(each.points, each.points[1:], strict=False):
            _join(grid, _cell(begin, across, up, width, height), _cell(end, across, up, width, height))
    for each in series:
        for point in each.points:
            column, row = _cell(point, across, up, width, height)
            grid[row][column] = each.mark
    names = {_row(value, up, height): name_y(value) for value in up.marks()}
    lines = [f"{names.get(row, ''):>{LEFT - 2}} │{''.join(cells)}".rstrip() for row, cells in enumerate(grid)]
    lines.append(" " * (LEFT - 1) + "└" + "─" * width)
    lines.append(" " * LEFT + _ticks(series, across, width))
    return lines


def _ticks(series: Sequence[Series], across: LogScale, width: int) -> str:
    line = [" "] * (width + 8)
    free_from = 0
    for x in sorted({x for each in series for x, _ in each.points}):
        text = f"{x:g}"
        at = min(round(across.share(x) * (width - 1)), width - 1)
        if at >= free_from:
            line[at : at + len(text)] = text
            free_from = at + len(text) + 1
    return "".join(line).rstrip()


def _cell(
    point: tuple[float, float], across: LogScale, up: LogScale, width: int, height: int
) -> tuple[int, int]:
    return min(max(round(across.share(point[0]) * (width - 1)), 0), width - 1), _row(point[1], up, height)


def _row(value: float, up: LogScale, height: int) -> int:
    return min(max(round((1 - up.share(value)) * (height - 1)), 0), height - 1)


def _join(grid: list[list[str]], begin: tuple[int, int], end: tuple[int, int]) -> None:
    columns = end[0] - begin[0]
    for column in range(begin[0] + 1, end[0]):
        row = round(begin[1] + (end[1] - begin[1]) * (column - begin[0]) / columns)
        if grid[row][column] == " ":
            grid[row][column] = "·"
