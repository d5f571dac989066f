"""Mode 2: where the step goes, what each signal says, and the fit of the batch probe."""

from __future__ import annotations

from autobrrr.quantities import duration, share
from autobrrr.records import BatchProbe, Diagnosis, Evidence
from autobrrr.records.gain_words import factor_words
from autobrrr_tui import text_bars
from autobrrr_tui.list_choice import UNCHANGED, ListChoice, ListSort, chosen, head, left_out, listed
from autobrrr_tui.panes import rank_table
from autobrrr_tui.text_rows import (
    BLANK,
    Page,
    Row,
    facts,
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
SORTS: tuple[ListSort[Evidence], ...] = (
    ListSort(column="says", key=lambda evidence: evidence.says),
    ListSort(column="signal", key=lambda evidence: evidence.signal),
)


def page(view: View, width: int, height: int, choice: ListChoice = UNCHANGED) -> Page:
    found = view.snapshot
    if found is None:
        return Page(rows=[row(piece("  nothing is known yet", "dim"))])
    rows: list[Row] = []
    first = found.limit_reason or found.reason
    rows += [row(piece(f"  {line}", "strong")) for line in wrapped(first, width - 4, 3)]
    if found.where:
        rows += [
            row(piece(f"  {line}", "regime")) for line in wrapped(f"at {found.where[0].words}", width - 4, 2)
        ]
    for trend in found.trends:
        rows += [row(piece(f"  {line}", "warn")) for line in wrapped(trend.words, width - 4, 2)]
    rows += [row(piece(f"  {line}")) for line in wrapped(found.adds, width - 4, 4)]
    rows += [BLANK, *_shares(found, width), BLANK]
    rows += _ranks(view, width)
    picks: dict[int, str] = {}
    shown = listed(found.evidence, choice, SORTS, lambda each: f"{each.signal} {each.says or ''} {each.note}")
    rows += [
        heading("evidence"),
        *left_out(len(shown), len(found.evidence), choice),
        _header(chosen(SORTS, choice)),
    ]
    first_with: dict[str, str] = {}  # a ground that several signals name is said once
    for evidence in shown:
        picks[len(rows)] = evidence.signal
        same = first_with.setdefault(evidence.note, evidence.signal) if evidence.value is None else ""
        alike = same not in ("", evidence.signal)
        rows += _evidence(evidence, width, f"as {same.replace('_', ' ')}" if alike else evidence.note)
    if not found.evidence:
        rows.append(row(piece("  none yet", "dim")))
    rows += [BLANK, *_probe(found.batch_probe, min(76, width - 4))]
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


def _ranks(view: View, width: int) -> list[Row]:
    """All ranks of the job, where it has several."""
    if len(view.ranks) < 2:
        return []
    straggler = view.snapshot.straggler if view.snapshot is not None else None
    room = width - 4
    rows = [*rank_table.said(straggler, room), *rank_table.table(view.ranks, straggler, room)]
    return [heading("ranks"), *(row("  ", *each) for each in rows), BLANK]


def details(view: View, key: str, width: int) -> list[Row]:
    """All that one signal says."""
    evidence = next(
        (
            each
            for each in (view.snapshot.evidence if view.snapshot is not None else ())
            if each.signal == key
        ),
        None,
    )
    if evidence is None:
        return []
    says, tone = _says(evidence)
    known = [
        ("says", says if says != "-" else "names nothing, excludes nothing", tone),
        ("figure", _figure(evidence), "plain"),
        ("unit", evidence.unit if evidence.value is not None else "", "plain"),
        ("excludes", ", ".join(evidence.against), "plain"),
        ("note", evidence.note, "plain"),
    ]
    return facts(known, width)


def _header(sort: ListSort[Evidence] | None) -> Row:
    heads = f"  {head('signal', 17, sort)}{head('says', 15, sort)}{'figure':<9} note"
    return row(piece(heads, "dim"))


def _says(evidence: Evidence) -> tuple[str, str]:
    """What a signal names or excludes, and its tone."""
    if evidence.says is not None:
        return evidence.says, "good"
    return (f"not {evidence.against[0]}", "plain") if evidence.against else ("-", "dim")


def _evidence(evidence: Evidence, width: int, note: str) -> list[Row]:
    says, tone = _says(evidence)
    room = max(10, width - 45)
    notes = wrapped(note, room, 3) or [""]
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


def _probe(probe: BatchProbe, room: int) -> list[Row]:
    """Measured step times against the batch, with the fitted line."""
    rows = [heading("batch probe: step time against batch size")]
    if probe.status != "ok" or not probe.points:
        return [
            *rows,
            *(row(piece(f"  {line}", "dim")) for line in wrapped(probe.why or "not measured", room, 3)),
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
        rows += [row(f"  {line}") for line in wrapped(fit, room)]
    else:
        rows += [row(f"  {batch:>8.0f} samples  {duration(ns)}") for batch, ns in points]
    if probe.why:
        rows += [row(piece(f"  {line}", "dim")) for line in wrapped(probe.why, room, 2)]
    return rows
