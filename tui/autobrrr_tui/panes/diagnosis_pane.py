"""Mode 2: where the step goes, what each signal says, and the fit of the batch probe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autobrrr.quantities import duration, share
from autobrrr.records import BatchProbe, Diagnosis, Evidence
from autobrrr.records.gain_words import factor_words
from autobrrr.records.rank_records import straggler_words
from autobrrr.report.page_model import Bar, Cell, Line, LineGroup, PageTable, Tone
from autobrrr.report.step_shares import parts as shares_of
from autobrrr.report.text.rank_text import ranks_table
from autobrrr_tui import text_bars
from autobrrr_tui.page_rows import Drawn, ScreenPart
from autobrrr_tui.text_rows import Row, piece, row
from autobrrr_tui.view_state import View

PLOT_CELLS, PLOT_ROWS = 36, 6
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
    yield _evidence(found.evidence) if found.evidence else Line(text="no evidence yet", tone="muted")
    yield from _probe(found.batch_probe)
    if found.advice:
        said = [
            Line(
                name=each.remedy,
                text=f"{'' if each.expected is None else f'{factor_words(each.expected)} predicted, '}"
                f"{each.reach}, {each.class_}; {each.why}",
            )
            for each in found.advice
        ]
        yield Line(text="remedies", tone="title")
        yield LineGroup(lines=said, shape="facts")
    if found.decide_with:
        yield Line(name="decide", text=found.decide_with, tone="accent")


def _evidence(evidence: Sequence[Evidence]) -> PageTable:
    first: dict[str, str] = {}  # a ground that several signals name is said once
    rows = []
    for each in evidence:
        same = first.setdefault(each.note, each.signal) if each.value is None else each.signal
        note = each.note if same == each.signal else f"as {same.replace('_', ' ')}"
        rows.append(
            [Cell(text=each.signal.replace("_", " ")), _says(each), Cell(text=_figure(each)), Cell(text=note)]
        )
    return PageTable(
        title="evidence",
        heads=("signal", "says", "-figure", "-note"),
        rows=rows,
        keys=[each.signal for each in evidence],
        more={each.signal: _more(each) for each in evidence},
    )


def _more(evidence: Evidence) -> list[Line]:
    says = _says(evidence)
    return [
        Line(
            name="says",
            text="names nothing, excludes nothing" if says.text == "-" else says.text,
            tone=says.tone,
        ),
        Line(name="unit", text=evidence.unit if evidence.value is not None else ""),
        Line(name="excludes", text=", ".join(evidence.against)),
        Line(name="note", text=evidence.note),
    ]


def _says(evidence: Evidence) -> Cell:
    """What a signal names or excludes."""
    if evidence.says is not None:
        return Cell(text=evidence.says, tone="better")
    tone: Tone = "" if evidence.against else "muted"
    return Cell(text=f"not {evidence.against[0]}" if evidence.against else "-", tone=tone)


def _figure(evidence: Evidence) -> str:
    if evidence.value is None:
        return "-"
    if evidence.unit.startswith("share"):
        return share(evidence.value)
    return duration(evidence.value) if evidence.unit == "ns" else f"{evidence.value:.2f} {evidence.unit}"


def _probe(probe: BatchProbe) -> Iterator[ScreenPart]:
    """Measured step times against the batch, with the fitted line."""
    points = [(float(point.batch), float(point.step_ns)) for point in probe.points]
    if probe.status != "ok" or not points:
        yield Line(text=PROBE, tone="title")
        yield Line(text=probe.why or "not measured", tone="muted")
        return
    if probe.fixed_ns is None or probe.per_sample_ns is None:
        rows = [[Cell(text=f"{batch:.0f} samples"), Cell(text=duration(ns))] for batch, ns in points]
        yield PageTable(title=PROBE, heads=("", ""), rows=rows)
    else:
        line = (float(probe.fixed_ns), probe.per_sample_ns)
        yield Line(text=PROBE, tone="title")
        yield Drawn(draw=lambda width: _plot(points, line))
        fit = f"fixed {duration(probe.fixed_ns)} + {duration(probe.per_sample_ns)} a sample"
        if probe.ratio_2x is not None:
            bounds = probe.ratio_2x_interval
            said = "" if bounds is None else f" [{bounds[0]:.2f}, {bounds[1]:.2f}]"
            fit += f"; twice the batch takes {probe.ratio_2x:.2f}{said} times as long"
        yield Line(text=fit)
    if probe.why:
        yield Line(text=probe.why, tone="muted")


def _plot(points: Sequence[tuple[float, float]], line: tuple[float, float]) -> list[Row]:
    top, last = duration(max(ns for _, ns in points)), f"{points[-1][0]:.0f}"
    names = [top, *[""] * (PLOT_ROWS - 2), "0"]
    drawn = text_bars.plot(points, line, PLOT_CELLS, PLOT_ROWS)
    rows = [row(piece(f"  {name:>8} ", "dim"), *each) for name, each in zip(names, drawn, strict=True)]
    axis = f"{'':>11}0{' ' * (PLOT_CELLS - 1 - len(last))}{last} samples"
    return [*rows, row(piece(axis, "dim"))]
