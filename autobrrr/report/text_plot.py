"""Drawn in characters: a bar in eighths of a cell, a gain with its interval on an axis."""

from __future__ import annotations

from collections.abc import Sequence

from autobrrr.report.log_scale import LogScale

_BLOCKS = " ▏▎▍▌▋▊▉█"


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
