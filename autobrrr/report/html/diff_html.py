"""Two sessions, or two traces, side by side as one page."""

from __future__ import annotations

from collections.abc import Iterator

from autobrrr.report.html.page_tables import Cell, PageTable, bar, figure, words
from autobrrr.report.html.page_template import render
from autobrrr.report.side_by_side import ComparedAnalysis, ComparedFigure, ComparedSessions, change, quantity


def page(compared: ComparedSessions | ComparedAnalysis) -> str:
    """The page."""
    found = compared.comparison
    groups = dict.fromkeys(each.group for each in found.figures)
    return render(
        "diff",
        data=compared,
        data_name="comparison.json",
        kind="two sessions" if found.kind == "sessions" else "two traces",
        title="Before and after",
        about=[],
        found=found,
        words=PageTable(
            caption="What was found",
            heads=("", "-before", "-after"),
            rows=[words(each.name, each.before, each.after) for each in found.words],
        ),
        heads=[each for each in found.figures if each.group == "step" and each.name == "median"],
        tables=[_table(group, [each for each in found.figures if each.group == group]) for group in groups],
        quantity=quantity,
        change=change,
    )


def _table(group: str, figures: list[ComparedFigure]) -> PageTable:
    most = max([value for each in figures for value in (each.before, each.after) if value], default=1.0)

    def cells(each: ComparedFigure) -> Iterator[Cell]:
        yield Cell(text=each.name)
        yield figure(quantity(each.before, each.unit), each.before)
        yield bar((each.before or 0.0) / most, "other")
        yield figure(quantity(each.after, each.unit), each.after)
        yield bar((each.after or 0.0) / most, "memory")
        yield Cell(text=change(each), sort=each.ratio, tone=each.side)

    return PageTable(
        caption=group,
        heads=("", "#before", "-", "#after", "-", "#after / before"),
        rows=[list(cells(each)) for each in figures],
    )
