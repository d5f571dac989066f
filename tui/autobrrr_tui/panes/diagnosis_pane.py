"""Mode 2: where the step goes, what each signal says, and the fit of the batch probe."""

from __future__ import annotations

from autobrrr.records import BatchProbe, Diagnosis, Evidence
from autobrrr.records.gain_words import factor_words
from autobrrr_tui import text_bars
from autobrrr_tui.shown_figures import duration, share
from autobrrr_tui.text_rows import (
    BLANK,
    Page,
    Row,
    heading,
    labelled,
    padded,
    piece,
    row,
    wrapped,
)
from autobrrr_tui.view_state import View

SHARES = (
    ("overhead", "▓", "overhead"),
    ("input", "░", "input"),
    ("host", "▒", "host"),
    ("sync", "▚", "sync"),
    ("communication", "▞", "communication"),
    ("memory", "█", "memory"),
    ("compute", "▙", "compute"),
    ("underfilled", "▖", "underfilled"),
    ("other", "·", "other"),
)
PLOT_CELLS, PLOT_ROWS = 36, 6


def page(view: View, width: int, height: int) -> Page:
    found = view.snapshot
    if found is None:
        return Page(rows=[row(piece("  nothing is known yet", "dim"))])
    rows: list[Row] = []
    first = found.limit_reason or found.reason
    rows += [row(piece(f"  {line}", "strong")) for line in wrapped(first, width - 4, 3)]
    rows += [row(piece(f"  {line}")) for line in wrapped(found.adds, width - 4, 4)]
    rows += [BLANK, *_shares(found, width), BLANK]
    picks: dict[int, str] = {}
    rows += [heading("evidence (Enter explains a signal)"), *_header()]
    for evidence in found.evidence:
        picks[len(rows)] = evidence.signal
        rows += _evidence(evidence, width)
    if not found.evidence:
        rows.append(row(piece("  none yet", "dim")))
    rows += [BLANK, *_probe(found.batch_probe)]
    if found.advice:
        rows += [BLANK, heading("remedies")]
    for advice in found.advice:
        gain = "" if advice.expected is None else f" {factor_words(advice.expected)} predicted,"
        said = f"{advice.remedy}:{gain} {advice.reach}, {advice.class_}; {advice.why}"
        rows += [row(piece(f"  {line}")) for line in wrapped(said, width - 4, 3)]
    if found.decide_with:
        rows += [BLANK, labelled("decide", piece(found.decide_with, "accent"))]
    return Page(rows=rows, picks=picks)


def _shares(found: Diagnosis, width: int) -> list[Row]:
    room = width - 12
    parts: list[text_bars.Part] = [
        (name, value, glyph, tone)
        for name, glyph, tone in SHARES
        if (value := getattr(found.shares, name)) is not None and value > 0
    ]
    if not parts:
        return [labelled("shares", piece("not measured yet", "dim"))]
    lines = text_bars.flowed(text_bars.legend(parts, [share(value) for _, value, _, _ in parts]), room)
    return [labelled("shares", *text_bars.bar(parts, room)), *(labelled("", *line) for line in lines)]


def _header() -> list[Row]:
    return [row(piece(f"  {'signal':<16} {'says':<14} {'figure':<9} note", "dim"))]


def _evidence(evidence: Evidence, width: int) -> list[Row]:
    if evidence.says is not None:
        says, tone = evidence.says, "good"
    elif evidence.against:
        says, tone = f"not {evidence.against[0]}", "warn"
    else:
        says, tone = "-", "dim"
    room = max(10, width - 45)
    notes = wrapped(evidence.note, room, 3) or [""]
    first = row(
        f"  {padded(evidence.signal.replace('_', ' '), 16)} ",
        piece(padded(says, 14), tone),
        f" {padded(_figure(evidence), 9)} {notes[0]}",
    )
    return [first, *(row(f"{'':>44}{line}") for line in notes[1:])]


def _figure(evidence: Evidence) -> str:
    if evidence.value is None:
        return "-"
    if evidence.unit.startswith("share"):
        return share(evidence.value)
    if evidence.unit == "ns":
        return duration(evidence.value)
    return f"{evidence.value:.2f} {evidence.unit}"


def _probe(probe: BatchProbe) -> list[Row]:
    """Measured step times against the batch, with the fitted line."""
    rows = [heading("batch probe: step time against batch size")]
    if probe.status != "ok" or not probe.points:
        return [
            *rows,
            *(row(piece(f"  {line}", "dim")) for line in wrapped(probe.why or "not measured", 76, 3)),
        ]
    points = [(float(point.batch), float(point.step_ns)) for point in probe.points]
    if probe.fixed_ns is not None and probe.per_sample_ns is not None:
        drawn = text_bars.plot(points, (float(probe.fixed_ns), probe.per_sample_ns), PLOT_CELLS, PLOT_ROWS)
        top = max(ns for _, ns in points)
        rows += [
            row(
                piece(f"  {duration(top) if i == 0 else '0' if i == PLOT_ROWS - 1 else '':>8} ", "dim"), *line
            )
            for i, line in enumerate(drawn)
        ]
        last = f"{points[-1][0]:.0f}"
        rows.append(row(piece(f"{'':>11}0{' ' * (PLOT_CELLS - 1 - len(last))}{last} samples", "dim")))
        fit = f"fixed {duration(probe.fixed_ns)} + {duration(probe.per_sample_ns)} a sample"
        if probe.ratio_2x is not None:
            bounds = probe.ratio_2x_interval
            said = "" if bounds is None else f" [{bounds[0]:.2f}, {bounds[1]:.2f}]"
            fit += f"; twice the batch takes {probe.ratio_2x:.2f}{said} times as long"
        rows += [row(f"  {line}") for line in wrapped(fit, 76)]
    else:
        rows += [row(f"  {batch:>8.0f} samples  {duration(ns)}") for batch, ns in points]
    if probe.why:
        rows += [row(piece(f"  {line}", "dim")) for line in wrapped(probe.why, 76, 2)]
    return rows
