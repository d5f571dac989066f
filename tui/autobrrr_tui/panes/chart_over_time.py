"""The median step of each second as a curve: what was cut off above it, what happened below it.

In: a view and so many cells. Out: rows, or none where nothing was measured.
"""

from __future__ import annotations

from collections.abc import Sequence

from autobrrr.quantities import duration
from autobrrr_tui.text_bars import curve
from autobrrr_tui.text_rows import Row, piece, row
from autobrrr_tui.view_state import View

AXIS = 9  # cells of a figure beside the curve


def chart(view: View, room: int, height: int) -> list[Row]:
    """Median step of each second: axis, curve, the step before tuning, what was cut off, marks."""
    found = view.snapshot
    history = None if view.details is None else view.details.history
    if found is None or history is None or height < 4:
        return []
    known = sorted(value for value in history.median_ns if value is not None)
    if not known:
        return []
    before = view.tuned.baseline if view.tuned is not None and view.tuned.objective == "step_ns" else None
    usual = known[len(known) // 2]
    high = min(known[int(0.98 * (len(known) - 1))], 3 * usual)  # a pause of seconds would flatten all else
    top = 1.25 * max(float(high), before or 0.0)
    cells, rows = _cells(room), height - 2
    each = max(1, 2 * cells // max(30, len(history.median_ns)))  # columns of dots a second
    columns = [value for value in history.median_ns for _ in range(each)]
    drawn = curve([None if value is None else float(value) for value in columns], cells, rows, top)
    at = None if not before else min(rows - 1, int(rows * (1 - before / top)))
    body: list[Row] = []
    for line, text in enumerate(drawn):
        label = duration(top) if line == 0 else duration(top / 2) if line == rows // 2 else ""
        pieces = [piece(f"{label:>{AXIS}}┤", "dim")]
        if line == at:
            tail = f" {duration(before)} before"
            pieces += [piece(text.replace(" ", "╌")[: cells - len(tail)], "accent"), piece(tail, "dim")]
        else:
            pieces.append(piece(text, "accent"))
        body.append(row(*pieces))

    def column(seconds_ago: float) -> int:
        return cells - 1 - int(seconds_ago * 1e9 / history.bucket_ns * each / 2)

    cut = [
        (column(len(history.median_ns) - 1 - index), f"↑{duration(value)}")
        for index, value in enumerate(history.longest_ns)
        if value is not None and value > 1.5 * top
    ]
    happened = [(column(((found.t_ns or 0) - mark.t_ns) / 1e9), f"╵{mark.text}") for mark in view.marks]
    return [
        row(piece(" " * (AXIS + 1)), piece(_labels(cut, cells), "bad")),
        *body,
        row(piece(f"{'0':>{AXIS}}┤", "dim"), piece(_labels(happened, cells), "warn")),
    ]


def _labels(placed: Sequence[tuple[int, str]], cells: int) -> str:
    """Words at their cells, the newest first; what would overlap or lies outside is left out."""
    line = [" "] * cells
    for at, text in reversed(placed):
        start = min(at, cells - len(text))
        around = line[max(0, start - 1) : start + len(text) + 1]
        if at >= 0 and start >= 0 and not "".join(around).strip():
            line[start : start + len(text)] = text
    return "".join(line)


def seconds_shown(view: View, room: int) -> str:
    """How far back the curve goes with so much room."""
    history = None if view.details is None else view.details.history
    seconds = 0 if history is None else min(len(history.median_ns), 2 * _cells(room))
    return f"last {seconds} s" if seconds else ""


def _cells(room: int) -> int:
    """Cells of the curve; each holds two seconds at most."""
    return max(0, room - AXIS - 1)
