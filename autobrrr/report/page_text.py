"""A page as text for a terminal: what does not fit into a column is wrapped, long names are cut.

Gains on an axis and drawings that move are left to the page; its tables hold their figures.
"""

from __future__ import annotations

from collections.abc import Iterator

from autobrrr.quantities import share
from autobrrr.readable import readable
from autobrrr.report.page_model import (
    Bar,
    Cell,
    Chart,
    Line,
    LineGroup,
    PageTable,
    Part,
    ReportPage,
    Section,
)
from autobrrr.report.text_table import LEAST, hung, text_table

WIDTH = 80
BAR, LEAST_BAR = 24, 8  # cells
NAME = 34  # cells of a name that the page shows in whole
LEAST_SHARE = 0.005
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def page_text(page: ReportPage, width: int | None = WIDTH) -> str:
    """The whole page; `None`: no line is wrapped."""
    blocks = [[page.title, *([" · ".join(page.about)] if page.about else [])]]
    blocks += [_section(each, width) for each in page.sections]
    return "\n\n".join("\n".join(_fitted(block, width)) for block in blocks if block)


def section_text(section: Section, width: int | None) -> str:
    """One section by itself."""
    return "\n".join(_fitted(_section(section, width), width))


def _fitted(lines: list[str], width: int | None) -> Iterator[str]:
    for line in lines:
        yield from [line.rstrip()] if width is None else hung(readable(line.rstrip()), width)


def _section(section: Section, width: int | None) -> list[str]:
    within = any(isinstance(part, Section) for part in section.parts)
    if section.on == "page" or (section.fold and not within):
        return []
    lines = [section.title] if section.title else []
    for part in section.parts:
        drawn = _part(part, width)
        apart = len(lines) > bool(section.title) and not isinstance(part, Line)
        lines += ([""] if drawn and apart else []) + drawn
    return lines if len(lines) > bool(section.title) else []


def _part(part: Part, width: int | None) -> list[str]:
    if isinstance(part, Line) and part.tone == "code":
        named = [f"  {part.name.rstrip(':')}:"] if part.name else []
        return [*named, *(f"    {line}" for line in part.text.splitlines())]
    if isinstance(part, Line):
        return [_line(part)]
    if isinstance(part, LineGroup):
        mark = {"list": "- ", "advice": "* "}.get(part.shape, "")
        names = max((len(each.name) for each in part.lines), default=0) + 2
        return [
            f"  {mark}{each.name:<{names}}{_noted(each)}" if each.name else f"  {mark}{_noted(each)}"
            for each in part.lines
        ]
    if isinstance(part, Bar):
        known = [each for each in part.parts if each[1] >= LEAST_SHARE]
        rows = [[Cell(text=name), Cell(text=share(value)), Cell(bar=value)] for name, value in known]
        return _table(PageTable(title=part.title, heads=("", "#", "-"), rows=rows), width)
    if isinstance(part, PageTable):
        return _table(part, width)
    if isinstance(part, Chart):
        return _table(_points(part), width) if part.places is None else []
    return _section(part, width) if isinstance(part, Section) else []


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


def _line(line: Line) -> str:
    said = f"{line.name.rstrip(':')}: {line.text}" if line.name else _noted(line)
    return said if line.tone == "head" else f"  {said}"


def _noted(line: Line) -> str:
    return f"{line.text} ({line.note})" if line.note else line.text


def _table(table: PageTable, width: int | None) -> list[str]:
    """Its title, its heads where there are any, its rows; columns that hold nothing are left out."""
    rows = table.rows[: table.most]
    used = [
        at
        for at in range(len(table.heads))
        if any(row[at].text not in ("", "-") or row[at].bar is not None for row in rows)
    ]
    natural = {at: max(len(table.heads[at]), *(len(row[at].text) for row in rows)) + 2 for at in used}
    for at in [each for each in reversed(used) if "~" in table.heads[each]]:
        if width is not None and sum(natural[each] for each in used) > width:
            used.remove(at)
    bars = [at for at in used if any(row[at].bar is not None for row in rows)]
    heads = [table.heads[at].lstrip("~#-") for at in used]
    texts = [[_cell(row[at]) for at in used] for row in rows]
    wide = [max(map(len, column)) for column in zip(heads, *texts, strict=True)]
    if bars:
        spare = (width or 100) - 2 - sum(wide) - 2 * len(used)
        cells = min(BAR, spare // len(bars))
        for at, column in [(at, used.index(at)) for at in bars]:
            for row, text in zip(rows, texts, strict=True):
                text[column] = _share_bar(row[at].bar or 0.0, cells) if cells >= LEAST_BAR else ""
    right = [i for i, at in enumerate(used) if table.heads[at].startswith("#")]
    wrap = [i for i, cells in enumerate(wide) if i not in right and cells > LEAST]
    drawn = text_table([heads, *texts], width=width, right=right, wrap=wrap, indent=2) if rows else []
    return ([table.title] if table.title and drawn else []) + drawn[0 if any(heads) else 1 :]


def _share_bar(share: float, cells: int) -> str:
    """A share as a bar, in eighths of a cell."""
    whole, part = divmod(round(max(0.0, min(1.0, share)) * cells * 8), 8)
    return "█" * whole + (_EIGHTHS[part] if part else "")


def _cell(cell: Cell) -> str:
    text = readable(cell.text)
    return text[: NAME - 1] + "…" if cell.title and len(text) > NAME else text
