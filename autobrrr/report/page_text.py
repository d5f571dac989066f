"""A page as text for a terminal or a pipe: the rows of a screen, without colours and whole.

Drawings that move are left to the page.
"""

from __future__ import annotations

from collections.abc import Iterator

from autobrrr.report.page_model import (
    Cell,
    Chart,
    Drawing,
    Line,
    PageTable,
    Part,
    ReportPage,
    Section,
)
from autobrrr.report.page_rows import UNBOUNDED, ScreenPart, page_rows, table_rows
from autobrrr.report.text_rows import plain

WIDTH = 80
MARGIN = 2  # cells that a screen leaves on the right
TITLES = ("title", "head")  # tones of rows that have no margin


def page_text(page: ReportPage, width: int | None = WIDTH) -> str:
    """The whole page; `None`: no line is wrapped."""
    about = [Line(text=" · ".join(page.about), tone="muted")] if page.about else []
    head = Section(title="", parts=[Line(text=page.title, tone="title"), *about])
    return "\n\n".join(text for each in (head, *page.sections) if (text := section_text(each, width)))


def section_text(section: Section, width: int | None) -> str:
    """One section by itself."""
    rows = page_rows(list(_parts(section)), (width or UNBOUNDED) + MARGIN).rows
    texts = [plain(each).removeprefix("  " if each and each[0][1] in TITLES else "") for each in rows]
    return "\n".join(texts)


def parts_text(*parts: Part, width: int | None = None) -> str:
    """Parts by themselves; `None`: no line is wrapped."""
    return section_text(Section(title="", parts=parts), width)


def table_text(table: PageTable, width: int | None) -> str:
    """A table alone, without a margin."""
    return "\n".join(map(plain, table_rows(table, width or UNBOUNDED)))


def _parts(section: Section) -> Iterator[ScreenPart]:
    """What of a section a text shows: of what is folded only whole sections."""
    within = any(isinstance(part, Section) for part in section.parts)
    if section.on == "page" or (section.fold and not within):
        return
    title = [Line(text=section.title, tone="title")] if section.title else []
    for part in section.parts:
        shown = _shown(part)
        yield from [*title, *shown] if shown else []
        title = [] if shown else title


def _shown(part: Part) -> list[ScreenPart]:
    if isinstance(part, Section):
        return list(_parts(part))
    if isinstance(part, Chart):
        return [_points(part)] if part.places is None else []
    return [] if isinstance(part, Drawing) else [part]


def _points(chart: Chart) -> PageTable:
    """The points of a chart as a table, with a bar for each series."""
    most = max([point.y for series in chart.lines for point in series.points], default=1.0)
    rows = []
    for x in sorted({point.x for series in chart.lines for point in series.points}):
        row = [Cell(text=f"{x:g}")]
        for series in chart.lines:
            y = next((point.y for point in series.points if point.x == x), None)
            row += [
                Cell() if y is None else Cell(text=chart.name_y(y)),
                Cell(bar=0.0 if y is None else y / most),
            ]
        rows.append(row)
    heads = [f"#{chart.name_x}", *(head for series in chart.lines for head in (f"#{series.name}", "~-"))]
    return PageTable(title=chart.title, heads=heads, rows=rows)
