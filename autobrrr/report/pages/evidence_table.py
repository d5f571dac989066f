"""The evidence of a verdict as a table, the same on every page and on the screen."""

from __future__ import annotations

from collections.abc import Sequence

from autobrrr.quantities import duration, share
from autobrrr.records import Evidence
from autobrrr.report.page_model import Cell, Line, PageTable, Tone, cells

SHARE_OF = "share of "  # how the unit of a share begins


def evidence_table(evidence: Sequence[Evidence], title: str) -> PageTable:
    """What each signal names or excludes, its figure, what it saw; what several saw is said once."""
    first: dict[str, str] = {}
    rows = []
    for each in evidence:
        same = first.setdefault(each.note, each.signal) if each.value is None else each.signal
        note = each.note if same == each.signal else f"as {same.replace('_', ' ')}"
        seen = Cell(text=note, tone="muted" if each.value is None else "")
        rows.append(cells(each.signal.replace("_", " "), _says(each), _figure(each), seen))
    return PageTable(
        title=title,
        heads=("signal", "says", "-figure", "-note"),
        rows=rows,
        keys=[each.signal for each in evidence],
        more={each.signal: _more(each) for each in evidence},
    )


def _more(evidence: Evidence) -> list[Line]:
    says = _says(evidence)
    said = "names nothing, excludes nothing" if says.text == "-" else says.text
    return [
        Line(name="says", text=said, tone=says.tone),
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


def _figure(evidence: Evidence) -> Cell:
    if evidence.value is None:
        return Cell(text="-")
    if evidence.unit.startswith("share"):
        said = share(evidence.value)
        of = f"{said} of {evidence.unit.removeprefix(SHARE_OF)}"
        return Cell(text=of, short=said, sort=evidence.value)
    said = duration(evidence.value) if evidence.unit == "ns" else f"{evidence.value:.3g} {evidence.unit}"
    return Cell(text=said, sort=evidence.value)
