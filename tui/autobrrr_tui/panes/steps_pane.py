"""Mode 1: step time over the last minutes, its distribution, and the steps that took far longer."""

from __future__ import annotations

from collections.abc import Sequence

from autobrrr.quantities import NOT_MEASURED, clock, duration
from autobrrr.records.wire_answers import SlowStep, StepHistory
from autobrrr.report.page_model import Cell, Line, PageTable, figure, time
from autobrrr_tui import text_bars
from autobrrr_tui.page_rows import Drawn, ScreenPart
from autobrrr_tui.panes.chart_over_time import chart, seconds_shown
from autobrrr_tui.text_rows import Row, heading, piece, row
from autobrrr_tui.view_state import View

AXIS = 11
ROOMY = 24  # rows from which on all stands above the list
CHART_ROWS, LOW_ROWS, LEAST_ROWS = 10, 6, 4
OTHERS = 7  # rows that are not the chart, with three slow steps
MOST_SLOW = 40
UNEXPLAINED = "not by autobrrr; perhaps an evaluation, a checkpoint, a log line or another program"
DASH = "-: not by autobrrr; perhaps an evaluation, a checkpoint or another program"


def parts(view: View, height: int) -> Sequence[ScreenPart]:
    history = view.details.history if view.details is not None else None
    if history is None or not any(value is not None for value in history.median_ns):
        return [Line(text="no step has ended yet", tone="muted")]
    roomy = height >= ROOMY
    tall = CHART_ROWS if roomy else max(LEAST_ROWS, min(LOW_ROWS, height - OTHERS))

    def curve(width: int) -> list[Row]:
        said = f"median step of each second, {seconds_shown(view, width - 3)}"
        return [heading(said), *(row("  ", *line) for line in chart(view, width - 3, tall))]

    often = [Drawn(draw=lambda width: _histogram(history, width))] if history.counts else []
    slow = list(reversed(history.slow))[:MOST_SLOW]
    table = PageTable(
        title="slow steps",
        heads=("#-step", "#-ago", "#took", "#of usual", "why"),
        rows=[_cells(step) for step in slow],
        keys=[str(step.seq) for step in slow],
        more={str(step.seq): [Line(name="why", text=step.why or UNEXPLAINED)] for step in slow},
    )
    none = Line(text="none took more than three times the usual", tone="muted")
    below = [Line(text=DASH, tone="muted")] if any(step.why is None for step in slow) else []
    listed = [table, *below] if slow else [none]
    return [Drawn(draw=curve), *often, *listed] if roomy else [Drawn(draw=curve), *listed, *often]


def _cells(step: SlowStep) -> list[Cell]:
    times = step.ns / max(1, step.usual_ns)
    return [
        Cell(text=str(step.seq)),
        figure(clock(step.before_ns), None),
        time(step.ns),
        figure(f"{times:.1f}x", times),
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
        row(piece(f"{label:>{AXIS}} ", "dim"), piece(line, "accent"))
        for label, line in zip(axis, lines, strict=True)
    ]
    gap = max(1, len(history.counts) * each - len(low) - len(high))
    return [*rows, row(piece(f"{'':>{AXIS}} {low}{' ' * gap}{high}", "dim"))]
