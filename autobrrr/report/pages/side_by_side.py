"""Two sessions, or two traces, side by side: figures of both, and why they may not be comparable.

Two runs at two times are no A/B test: nothing here claims a speed-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from autobrrr.quantities import duration, share
from autobrrr.records import SCHEMA, Diagnosis, Record, limit_words
from autobrrr.report.page_model import Cell, Line, PageTable, ReportPage, bar, cells, figure, listed, section
from autobrrr.report.past_session import SessionData
from autobrrr.trace.trace_records import Analysis, TraceAnalysis

NO_AB_TEST = "These are two runs at two times, not an A/B test: what the machine did besides differs, too."
SAME = 0.02  # figures that differ by less count as the same
SAME_POINTS = 0.005  # the same of shares
Unit: TypeAlias = Literal["ns", "share", "count"]


class ComparedFigure(Record, frozen=True, kw_only=True):
    """One figure of both; None is "not measured"."""

    group: str
    name: str
    unit: Unit
    before: float | None
    after: float | None
    less_is_better: bool | None = None  # None: it is no matter of better or worse

    @property
    def ratio(self) -> float | None:
        """After over before."""
        return self.after / self.before if self.before and self.after is not None else None

    @property
    def side(self) -> Literal["", "better", "worse"]:
        """Whether it got better; "" where it stayed, or where nobody can say."""
        if self.before is None or self.after is None or self.less_is_better is None or self.is_same:
            return ""
        return "better" if (self.after < self.before) == self.less_is_better else "worse"

    @property
    def is_same(self) -> bool:
        """Whether both are measured and differ by next to nothing."""
        if self.before is None or self.after is None:
            return False
        apart = abs(self.after - self.before)
        return apart < SAME_POINTS if self.unit == "share" else apart <= SAME * self.before


class ComparedWord(Record, frozen=True, kw_only=True):
    """What both say in words."""

    name: str
    before: str
    after: str


class SideBySide(Record, frozen=True, kw_only=True):
    """Two of a kind; `caveats` say why their figures may not be comparable."""

    kind: Literal["sessions", "traces"]
    before: str
    after: str
    words: list[ComparedWord]
    figures: list[ComparedFigure]
    caveats: list[str]


def compared(
    group: str,
    unit: Unit,
    name: str,
    both: Sequence[float | None],
    less_is_better: bool | None = None,
) -> ComparedFigure:
    """A figure of both."""
    before, after = both
    return ComparedFigure(
        group=group, name=name, unit=unit, before=before, after=after, less_is_better=less_is_better
    )


def said(name: str, both: Sequence[str]) -> ComparedWord:
    """What both say."""
    return ComparedWord(name=name, before=both[0], after=both[1])


class ComparedSessions(Record, frozen=True, kw_only=True):
    """`report --diff A B --json`."""

    schema: int = SCHEMA
    sessions: list[SessionData]  # A, B
    comparison: SideBySide


class ComparedAnalysis(Analysis, frozen=True, kw_only=True):
    """`analyze A --diff B --json`: both traces as of `analyze`, and how they compare."""

    comparison: SideBySide


def judged(both: Sequence[Diagnosis | TraceAnalysis]) -> list[ComparedWord]:
    """What limits each, and its regime."""
    limits = [
        "unknown" if each.limit == "unknown" else limit_words(each.limit, each.limit_confidence)
        for each in both
    ]
    return [said("limit", limits), said("regime", [f"{each.regime} ({each.confidence})" for each in both])]


def quantity(value: float | None, unit: Unit) -> str:
    """A figure with its unit."""
    if value is None:
        return "-"
    return duration(value) if unit == "ns" else share(value) if unit == "share" else f"{value:.4g}"


def change(figure: ComparedFigure) -> str:
    """How it changed: a share by points, all else by a factor."""
    if figure.before is None or figure.after is None:
        return ""
    if figure.is_same:
        return "same"
    if figure.unit == "share":
        return f"{100 * (figure.after - figure.before):+.0f} points"
    ratio = figure.ratio
    return "new" if ratio is None else f"{ratio:.2f}x"


def comparison_page(compared: ComparedSessions | ComparedAnalysis) -> ReportPage:
    """Both beside each other."""
    found = compared.comparison
    words_of = [cells(each.name, each.before, each.after) for each in found.words]
    median = [each for each in found.figures if each.group == "step" and each.name == "median"]
    groups = dict.fromkeys(each.group for each in found.figures)
    return ReportPage(
        kind="two sessions" if found.kind == "sessions" else "two traces",
        title="Before and after",
        about=[],
        sections=[
            section(
                "Step",
                Line(name="before", text=found.before, tone="muted"),
                Line(name="after", text=found.after, tone="muted"),
                *map(_head, median),
                listed(found.caveats),
            ),
            section("", PageTable(title="What was found", heads=("", "-before", "-after"), rows=words_of)),
            *(
                section("", _table(name, [one for one in found.figures if one.group == name]))
                for name in groups
            ),
        ],
        data=compared,
        file="comparison.json",
    )


def _head(step: ComparedFigure) -> Line:
    both = " → ".join(quantity(value, step.unit) for value in (step.before, step.after))
    changed = "the same time" if step.is_same else f"{change(step)} the time"
    return Line(text=both, note=f"{changed}, median", tone=step.side or "head")


def _table(group: str, figures: list[ComparedFigure]) -> PageTable:
    most = max([value for each in figures for value in (each.before, each.after) if value], default=1.0)
    rows = []
    for each in figures:
        both = ((each.before, "other"), (each.after, "memory"))
        drawn = [
            (figure(quantity(value, each.unit), value), bar((value or 0.0) / most, hue))
            for value, hue in both
        ]
        row = [Cell(text=each.name), *drawn[0], *drawn[1]]
        rows.append([*row, Cell(text=change(each), sort=each.ratio, tone=each.side)])
    return PageTable(title=group, heads=("", "#before", "~-", "#after", "~-", "#after / before"), rows=rows)
