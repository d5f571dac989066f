"""Mode 1: step time over the last minutes, its distribution, and the steps that took far longer.

The first screen shows the same curve.
"""

from __future__ import annotations

from collections.abc import Sequence

from autobrrr.quantities import NOT_MEASURED, clock, duration
from autobrrr.records.wire_answers import SlowStep, StepHistory
from autobrrr.report import text_bars
from autobrrr.report.page_model import Cell, Line, Value, figure, table
from autobrrr.report.page_text import Drawn, ScreenPart
from autobrrr.report.text_bars import curve, labels
from autobrrr.report.text_rows import Row, heading, piece, row
from autobrrr_tui.view_state import View

AXIS = 9  # cells of a figure beside a chart
ROOMY = 24  # rows from which on all stands above the list
CHART_ROWS, LOW_ROWS, LEAST_ROWS = 10, 6, 4
OTHERS = 7  # rows that are not the chart, with three slow steps
MOST_SLOW = 40
UNEXPLAINED = "not by autobrrr; perhaps an evaluation, a checkpoint, a log line or another program"
DASH = "-: not by autobrrr; perhaps an evaluation, a checkpoint or another program"


def parts(view: View, height: int) -> Sequence[ScreenPart]:
    history = view.details.history
    if not any(value is not None for value in history.median_ns):
        return [Line(text="no step has ended yet", tone="muted")]
    roomy = height >= ROOMY
    tall = CHART_ROWS if roomy else max(LEAST_ROWS, min(LOW_ROWS, height - OTHERS))

    def over_time(width: int) -> list[Row]:
        said = f"median step of each second, {seconds_shown(view, width - 3)}"
        return [heading(said), *(row("  ", *line) for line in chart(view, width - 3, tall))]

    often = [Drawn(draw=lambda width: _histogram(history, width))] if history.counts else []
    slow = list(reversed(history.slow))[:MOST_SLOW]
    listed_slow = table(
        "slow steps",
        ("#-step", "#-ago", "took:ns", "#of usual", "why"),
        [_values(step) for step in slow],
        keys=[str(step.seq) for step in slow],
        more={str(step.seq): [Line(name="why", text=step.why or UNEXPLAINED)] for step in slow},
    )
    none = Line(text="none took more than three times the usual", tone="muted")
    below = [Line(text=DASH, tone="muted")] if any(step.why is None for step in slow) else []
    listed = [listed_slow, *below] if slow else [none]
    return [Drawn(draw=over_time), *often, *listed] if roomy else [Drawn(draw=over_time), *listed, *often]


def _values(step: SlowStep) -> list[Value]:
    times = step.ns / max(1, step.usual_ns)
    return [
        *(str(step.seq), clock(step.before_ns), step.ns, figure(f"{times:.1f}x", times)),
        Cell(text=step.why or NOT_MEASURED, tone="muted" if step.why else ""),
    ]


def _histogram(history: StepHistory, width: int) -> list[Row]:
    each = 2 if width < 100 else 3
    counts = [float(count) for count in history.counts for _ in range(each)]
    lines = text_bars.columns(counts, 4, float(max(history.counts)))
    low, high = duration(history.edges_ns[0]), duration(history.edges_ns[-1])
    axis = [str(max(history.counts)), "", "", "0"]
    rows = [heading(f"how long the last {sum(history.counts)} steps took (logarithmic)")]
    rows += [
        row(piece(f"  {label:>{AXIS}} ", "muted"), piece(line, "accent"))
        for label, line in zip(axis, lines, strict=True)
    ]
    gap = max(1, len(history.counts) * each - len(low) - len(high))
    return [*rows, row(piece(f"  {'':>{AXIS}} {low}{' ' * gap}{high}", "muted"))]


def chart(view: View, room: int, height: int) -> list[Row]:
    """Median step of each second: axis, curve, the step before tuning, what was cut off, marks."""
    found, history = view.snapshot, view.details.history
    if found is None or height < 4:
        return []
    known = sorted(value for value in history.median_ns if value is not None)
    if not known:
        return []
    before = view.tuned.baseline if view.tuned is not None and view.tuned.objective == "step_ns" else None
    usual = known[len(known) // 2]
    high = min(known[int(0.98 * (len(known) - 1))], 3 * usual)  # a pause of seconds would flatten all else
    top = 1.25 * max(float(high), before or 0.0)
    cells, rows = _curve_cells(room), height - 2
    each = max(1, 2 * cells // max(30, len(history.median_ns)))  # columns of dots a second
    columns = [value for value in history.median_ns for _ in range(each)]
    drawn = curve([None if value is None else float(value) for value in columns], cells, rows, top)
    at = None if not before else min(rows - 1, int(rows * (1 - before / top)))
    body: list[Row] = []
    for line, text in enumerate(drawn):
        label = duration(top) if line == 0 else duration(top / 2) if line == rows // 2 else ""
        pieces = [piece(f"{label:>{AXIS}}┤", "muted")]
        if line == at:
            tail = f" {duration(before)} before"
            pieces += [piece(text.replace(" ", "╌")[: cells - len(tail)], "accent"), piece(tail, "muted")]
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
        row(piece(" " * (AXIS + 1)), piece(labels(cut[::-1], cells), "worse")),
        *body,
        row(piece(f"{'0':>{AXIS}}┤", "muted"), piece(labels(happened[::-1], cells), "warn")),
    ]


def seconds_shown(view: View, room: int) -> str:
    """How far back the curve goes with so much room."""
    seconds = min(len(view.details.history.median_ns), 2 * _curve_cells(room))
    return f"last {seconds} s" if seconds else ""


def _curve_cells(room: int) -> int:
    """Cells of the curve; each holds two seconds at most."""
    return max(0, room - AXIS - 1)
