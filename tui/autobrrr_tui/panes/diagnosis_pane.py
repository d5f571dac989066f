"""Mode 2: where the step goes, what each signal says, and the fit of the batch probe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autobrrr.quantities import duration
from autobrrr.records import BatchProbe, Diagnosis
from autobrrr.records.rank_records import straggler_words
from autobrrr.report.page_model import Bar, Line, LineGroup, PageTable, bar, cells, time
from autobrrr.report.pages.evidence_table import evidence_table
from autobrrr.report.step_shares import parts as shares_of
from autobrrr.report.text.rank_text import ranks_table
from autobrrr.report.text.verdict_text import advised
from autobrrr_tui.page_rows import ScreenPart
from autobrrr_tui.view_state import View

PROBE = "batch probe: step time against batch size"


def parts(view: View, height: int) -> Sequence[ScreenPart]:
    found = view.snapshot
    return [Line(text="nothing is known yet", tone="muted")] if found is None else list(_parts(view, found))


def _parts(view: View, found: Diagnosis) -> Iterator[ScreenPart]:
    yield Line(text=found.limit_reason or found.reason, tone="strong")
    if found.where:
        yield Line(text=f"at {found.where[0].words}", tone="head")
    for trend in found.trends:
        yield Line(text=trend.words, tone="warn")
    if found.adds:
        yield Line(text=found.adds)
    shares = shares_of(found.shares)
    yield (
        Bar(title="shares", parts=shares)
        if shares
        else Line(name="shares", text="not measured yet", tone="muted")
    )
    if len(view.ranks) > 1:
        late = found.straggler
        yield Line(text="ranks", tone="title")
        if late is not None:
            yield Line(text=straggler_words(late, duration), tone="" if late.rank is None else "worse")
        yield ranks_table(view.ranks, late)
    none = Line(text="no evidence yet", tone="muted")
    yield evidence_table(found.evidence, "evidence") if found.evidence else none
    yield from _probe(found.batch_probe)
    if found.advice:
        yield Line(text="remedies", tone="title")
        yield LineGroup(lines=[advised(each) for each in found.advice], shape="facts")
    if found.decide_with:
        yield Line(name="decide", text=found.decide_with, tone="accent")


def _probe(probe: BatchProbe) -> Iterator[ScreenPart]:
    """Measured step times against the batch, and the line that was fitted to them."""
    if probe.status != "ok" or not probe.points:
        yield Line(text=PROBE, tone="title")
        yield Line(text=probe.why or "not measured", tone="muted")
        return
    longest = max(point.step_ns for point in probe.points)
    rows = [
        cells(f"{point.batch} samples", time(point.step_ns), bar(point.step_ns / longest, "memory"))
        for point in probe.points
    ]
    yield PageTable(title=PROBE, heads=("#", "#", "~-"), rows=rows)
    if probe.fixed_ns is not None and probe.per_sample_ns is not None:
        fit = f"fixed {duration(probe.fixed_ns)} + {duration(probe.per_sample_ns)} a sample"
        if probe.ratio_2x is not None:
            bounds = probe.ratio_2x_interval
            said = "" if bounds is None else f" [{bounds[0]:.2f}, {bounds[1]:.2f}]"
            fit += f"; twice the batch takes {probe.ratio_2x:.2f}{said} times as long"
        yield Line(text=fit)
    if probe.why:
        yield Line(text=probe.why, tone="muted")
