"""Mode 1: step time over the last minutes, its distribution, and the steps that took far longer."""

from __future__ import annotations

from autobrrr.records.wire_answers import SlowStep, StepHistory
from autobrrr_tui import text_bars
from autobrrr_tui.shown_figures import clock, duration
from autobrrr_tui.text_rows import BLANK, Page, Row, clipped, heading, piece, row
from autobrrr_tui.view_state import View

AXIS = 11
CHART_ROWS = 5
MOST_SLOW = 40


def page(view: View, width: int, height: int) -> Page:
    history = view.details.history if view.details is not None else None
    if history is None or not any(value is not None for value in history.median_ns):
        return Page(rows=[row(piece("  no step has ended yet", "dim"))])
    rows = _over_time(history, width)
    rows += [BLANK, *_histogram(history, width)]
    rows += [BLANK, *_slow(history.slow)]
    return Page(rows=rows)


def _over_time(history: StepHistory, width: int) -> list[Row]:
    cells = max(10, width - AXIS - 3)
    medians = history.median_ns[-cells:]
    longest = history.longest_ns[-cells:]
    known = sorted(value for value in medians if value is not None)
    high = float(known[-1])
    seconds = len(medians) * history.bucket_ns / 1e9
    lines = text_bars.columns(medians, CHART_ROWS, high)
    axis = [duration(high), *[""] * (CHART_ROWS - 2), "0"]
    rows = [heading(f"median step of each second, {seconds:.0f} s up to now")]
    rows += [
        row(piece(f"{label:>{AXIS}} ", "dim"), piece(line, "accent"))
        for label, line in zip(axis, lines, strict=True)
    ]
    marks = "".join(
        "!" if most is not None and usual is not None and most > 3 * usual else " "
        for most, usual in zip(longest, medians, strict=True)
    )
    if marks.strip():
        rows.append(row(piece(f"{'slow steps':>{AXIS}} ", "dim"), piece(marks, "bad")))
    return rows


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


def _slow(slow: list[SlowStep]) -> list[Row]:
    if not slow:
        return [heading("slow steps"), row(piece("  none took more than three times the usual", "dim"))]
    rows = [
        heading("slow steps, newest first"),
        row(piece("       step   ended before     took   why", "dim")),
    ]
    for each in list(reversed(slow))[:MOST_SLOW]:
        times = f"{each.ns / max(1, each.usual_ns):.1f}x the usual  "
        known = each.why or ""
        line = f"  {each.seq:>9}   {clock(each.before_ns):>12} {duration(each.ns):>8}   {times}{known}"
        rows.append(row(piece(clipped(line, 110), "plain" if each.why is None else "dim")))
    return rows
