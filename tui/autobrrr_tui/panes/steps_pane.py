"""Mode 1: step time over the last minutes, its distribution, and the steps that took far longer."""

from __future__ import annotations

from autobrrr.quantities import NOT_MEASURED, clock, duration
from autobrrr.records.wire_answers import SlowStep, StepHistory
from autobrrr_tui import text_bars
from autobrrr_tui.list_choice import UNCHANGED, ListChoice, ListSort, chosen, head, left_out, listed
from autobrrr_tui.panes.chart_over_time import chart, seconds_shown
from autobrrr_tui.text_rows import BLANK, Page, Row, clipped, facts, heading, piece, row, wrapped
from autobrrr_tui.view_state import View

AXIS = 11
ROOMY = 24  # rows from which on all stands above the list
CHART_ROWS, LOW_ROWS, LEAST_ROWS = 10, 6, 4
OTHERS = 7  # rows that are not the chart, with three slow steps
MOST_SLOW = 40
UNEXPLAINED = "not by autobrrr; perhaps an evaluation, a checkpoint, a log line or another program"
DASH = "-: not by autobrrr; perhaps an evaluation, a checkpoint or another program"
SORTS: tuple[ListSort[SlowStep], ...] = (
    ListSort(column="took", key=lambda step: step.ns, falling=True),
    ListSort(column="why", key=lambda step: step.why),
)


def page(view: View, width: int, height: int, choice: ListChoice = UNCHANGED) -> Page:
    history = view.details.history if view.details is not None else None
    if history is None or not any(value is not None for value in history.median_ns):
        return Page(rows=[row(piece("  no step has ended yet", "dim"))])
    roomy = height >= ROOMY
    tall = CHART_ROWS if roomy else max(LEAST_ROWS, min(LOW_ROWS, height - OTHERS))
    curve = [row("  ", *line) for line in chart(view, width - 3, tall)]
    rows = [heading(f"median step of each second, {seconds_shown(view, width - 3)}"), *curve, BLANK]
    often = _histogram(history, width)
    rows += [*often, BLANK] if roomy else []
    slow = list(reversed(history.slow))
    shown = listed(slow, choice, SORTS, lambda step: f"{step.seq} {step.why or ''}")[:MOST_SLOW]
    rows += _slow_heads(len(shown), len(slow), choice)
    picks = {len(rows) + at: str(step.seq) for at, step in enumerate(shown)}
    rows += [_slow(step, width) for step in shown]
    if any(step.why is None for step in shown):
        rows += [row(piece(f"  {line}", "dim")) for line in wrapped(DASH, width - 4)]
    return Page(rows=rows if roomy else [*rows, BLANK, *often], picks=picks)


def details(view: View, key: str, width: int) -> list[Row]:
    """All that is known of one slow step."""
    history = None if view.details is None else view.details.history
    step = next(
        (each for each in (history.slow if history is not None else ()) if str(each.seq) == key), None
    )
    if step is None:
        return []
    known = [
        ("step", f"{step.seq:,}", "plain"),
        ("ended", f"{clock(step.before_ns)} ago", "plain"),
        ("took", f"{duration(step.ns)}, {step.ns / max(1, step.usual_ns):.1f} times the usual", "bad"),
        ("usual", duration(step.usual_ns), "plain"),
        ("why", step.why or UNEXPLAINED, "plain"),
    ]
    return facts(known, width)


def _histogram(history: StepHistory, width: int) -> list[Row]:
    if not history.counts:
        return []
    each = 2 if width < 100 else 3
    lines = text_bars.columns(
        [float(count) for count in history.counts for _ in range(each)], 4, float(max(history.counts))
    )
    low, high = duration(history.edges_ns[0]), duration(history.edges_ns[-1])
    axis = [str(max(history.counts)), "", "", "0"]
    rows = [heading(f"how long the last {sum(history.counts)} steps took (logarithmic)")]
    rows += [
        row(piece(f"{label:>{AXIS}} ", "dim"), piece(line, "accent"))
        for label, line in zip(axis, lines, strict=True)
    ]
    gap = max(1, len(history.counts) * each - len(low) - len(high))
    rows.append(row(piece(f"{'':>{AXIS}} {low}{' ' * gap}{high}", "dim")))
    return rows


def _slow_heads(shown: int, of: int, choice: ListChoice) -> list[Row]:
    if not of:
        return [heading("slow steps"), row(piece("  none took more than three times the usual", "dim"))]
    sort = chosen(SORTS, choice)
    took, why = head("took", 9, sort, right=True), head("why", 20, sort)
    heads = f"  {'step':>9}   {'ago':>9} {took} {'of usual':>10}   {why}"
    return [
        heading("slow steps" if sort is not None else "slow steps, newest first"),
        *left_out(shown, of, choice),
        row(piece(heads.rstrip(), "dim")),
    ]


def _slow(step: SlowStep, width: int) -> Row:
    times = f"{step.ns / max(1, step.usual_ns):.1f}x"
    why = step.why or NOT_MEASURED
    line = f"  {step.seq:>9}   {clock(step.before_ns):>9} {duration(step.ns):>9} {times:>10}   {why}"
    return row(piece(clipped(line, width), "plain" if step.why is None else "dim"))
