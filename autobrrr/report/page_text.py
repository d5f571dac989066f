"""Parts of the page model as rows: sentences wrapped, bars, tables that can be searched, sorted, chosen from.

A screen and a text have the same rows; a text has no colours and leaves out drawings that move. A table gives
way to little room: columns that can be missed go first; then a list to choose from cuts its names, and any
other table becomes paragraphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeAlias

from rich.cells import cell_len

from autobrrr.quantities import JOINED, share
from autobrrr.readable import readable
from autobrrr.report import text_bars
from autobrrr.report.page_model import (
    Bar,
    Cell,
    Chart,
    Drawing,
    Line,
    LineGroup,
    PageTable,
    Part,
    ReportPage,
    Section,
)
from autobrrr.report.text_bars import labels, place, whisker
from autobrrr.report.text_rows import (
    BLANK,
    LABEL,
    Page,
    Piece,
    Row,
    clipped,
    heading,
    labelled,
    middled,
    padded,
    piece,
    plain,
    row,
    wrapped,
)

WIDE = 110  # cells of a screen from which on the details stand beside a list
LEAST, LEAST_BAR, MOST_BAR = 16, 6, 30  # cells of a column of words, of bars
LEAST_SHARE = 0.0005  # of a part of a bar
LEAST_AXIS, MOST_AXIS, TICK = 24, 60, 6  # of gains on an axis; of a tick that is not 1x
NAMES, SHORT_NAMES, LEAST_NAMES = 27, 17, 8  # of names: for which columns give way; that are left
TITLED = 34  # of a name that stands whole elsewhere
UNBOUNDED = 1 << 20  # cells where a program reads
PIPED_BAR = 88  # cells of a whole there
GLYPHS: Mapping[str, str] = {  # of parts of a bar, so that it reads without colours
    "overhead": "▓",
    "input": "░",
    "host": "▒",
    "sync": "▚",
    "communication": "▞",
    "memory": "█",
    "compute": "▙",
    "underfilled": "▖",
    "data_wait": "░",
    "host_to_device": "▒",
    "forward": "▓",
    "backward": "█",
    "optimizer": "▞",
    "other": "·",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListChoice:
    """One list as the user wants it."""

    search: str = ""  # a row is shown where it holds every word of this
    sort: int = 0  # number of one of the list's columns that sort; 0 is the list's own order


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Rows that are drawn for so many cells, as they are."""

    draw: Callable[[int], Sequence[Row]]


ScreenPart: TypeAlias = Line | LineGroup | Bar | PageTable | Drawn
UNCHANGED = ListChoice()


def page_rows(parts: Sequence[ScreenPart], width: int, choice: ListChoice = UNCHANGED) -> Page:
    """Parts one under the other; the rows of a table with keys can be chosen."""
    rows: list[Row] = []
    picks: dict[int, str] = {}
    for at, part in enumerate(parts):
        if rows and _apart(parts[at - 1], part):
            rows.append(BLANK)
        if isinstance(part, PageTable):
            for line, key in _table(part, width, choice):
                picks |= {len(rows): key} if key else {}
                rows.append(line)
        else:
            rows += _rows(part, width)
    return Page(rows=rows, picks=picks)


def table_rows(table: PageTable, room: int) -> list[Row]:
    """A table alone, in so many cells, without the margins of a page."""
    return [line[1:] for line, _ in _table(table, room + 4, UNCHANGED)]


def _apart(before: ScreenPart, part: ScreenPart) -> bool:
    """Whether a blank row stands between: not below a title, nor above a remark."""
    if isinstance(before, Line) and before.tone == "title":
        return False
    return not (
        isinstance(part, Line)
        and (part.tone == "muted" or (isinstance(before, Line) and part.tone != "title"))
    )


def _rows(part: Line | LineGroup | Bar | Drawn, width: int) -> Sequence[Row]:
    if isinstance(part, Drawn):
        return part.draw(width)
    if isinstance(part, Bar):
        return _bar(part, width)
    if isinstance(part, Line) and part.tone == "code":
        named = [row(piece(f"  {part.name.rstrip(':')}:"))] if part.name else []
        return [*named, *(row(piece(f"    {line}", "accent")) for line in part.text.splitlines())]
    lines = [part] if isinstance(part, Line) else part.lines
    mark = "- " if isinstance(part, LineGroup) else ""
    said = [
        row(piece(f"  {' ' * len(mark) if at else mark}{text}", each.tone))
        for each in lines
        if not each.name
        for at, text in enumerate(wrapped(_noted(each), width - 4 - len(mark)))
    ]
    return [*said, *(row("  ", *each) for each in facts([each for each in lines if each.name], width - 4))]


def facts(lines: Sequence[Line], cells: int) -> list[Row]:
    """Names and what is known of them, wrapped; what was not measured is left out."""
    names = max((len(each.name) for each in lines), default=0) + 2
    return [
        row(piece(f"{'' if at else each.name:<{names}}", "muted"), piece(text, each.tone))
        for each in lines
        if each.text not in ("", "-")
        for at, text in enumerate(wrapped(_noted(each), max(10, cells - names)))
    ]


def _noted(line: Line) -> str:
    return f"{line.text} ({line.note})" if line.note else line.text


def _bar(part: Bar, width: int) -> list[Row]:
    """Beside a short title, else below it."""
    room = (PIPED_BAR if width >= UNBOUNDED else width) - 12
    if len(part.title) > LABEL - 1:
        return [heading(part.title), *(row("  ", *line) for line in bar_rows(part, room))]
    return [labelled("" if at else part.title, *line) for at, line in enumerate(bar_rows(part, room))]


def bar_rows(part: Bar, room: int) -> list[Row]:
    """One bar that sums to the whole, and below it what its parts are; none where nothing was measured."""
    hues = [name.replace(" ", "_") for name, _ in part.parts]
    known = [
        (name, value, hue if hue in GLYPHS else "other")
        for (name, value), hue in zip(part.parts, hues, strict=True)
        if value >= LEAST_SHARE
    ]
    widths = text_bars.cells_of([value for _, value, _ in known], room)
    drawn = [
        piece(GLYPHS[hue] * cells, hue) for (_, _, hue), cells in zip(known, widths, strict=True) if cells
    ]
    legend = [piece(f"{GLYPHS[hue]} {name} {share(value)}", hue) for name, value, hue in known]
    return [row(*drawn), *text_bars.flowed(legend, room)] if known else []


def chosen_table(parts: Sequence[ScreenPart]) -> PageTable | None:
    """The table whose rows can be chosen, where there is one."""
    return next((part for part in parts if isinstance(part, PageTable) and part.keys), None)


def sorting(table: PageTable) -> list[int]:
    """The columns that sort, in the order in which `s` takes them."""
    return [at for at, head in enumerate(table.heads) if _name(head) and "-" not in head[:3]]


def details(parts: Sequence[ScreenPart], key: str) -> list[Line]:
    """All that is known of one row: its cells by their heads, and what else its table holds."""
    table = chosen_table(parts)
    if table is None or key not in table.keys:
        return []
    cells = table.rows[list(table.keys).index(key)]
    more = table.more.get(key, ())
    told = {"", *(line.name for line in more)}
    heads = list(map(_name, table.heads))
    known = [
        Line(name=head, text=cell.text, tone=cell.tone)
        for head, cell in zip(heads, cells, strict=True)
        if head not in told
    ]
    return [*known, *more]


def detail_cells(width: int) -> int:
    """Cells of the details beside a list on a screen of this width; 0 where they open over it."""
    return min(56, max(40, width // 3)) if width >= WIDE else 0


def _table(table: PageTable, width: int, choice: ListChoice) -> Iterator[tuple[Row, str]]:
    """Title, what a search leaves out, heads, rows with their keys; nothing of a table without rows."""
    chosen = choice if table.keys else UNCHANGED
    found, by = _order(table, chosen)
    order = found[: table.most]
    columns = _columns(table, order, width - 4, by)
    if table.title:
        for said in wrapped(table.title, width - 4):
            yield heading(said), ""
    if chosen.search:
        left = f"  {len(found)} of {len(table.rows)} hold {chosen.search!r}"
        yield row(piece(left, "warn"), piece("   Esc shows all", "muted")), ""
    if not table.keys and sum(columns.values()) + 2 * (len(columns) - 1) > width - 4:
        for at in order:
            yield from ((line, "") for line in _paragraph(table, table.rows[at], list(columns), width - 4))
        return
    if any(map(_name, table.heads)):
        heads = (
            _padded(_title(table, at, cells, by), cells, table.heads[at]) for at, cells in columns.items()
        )
        yield row("  ", piece("  ".join(heads).rstrip(), "muted")), ""
    for at in order:
        key = table.keys[at] if table.keys else ""
        for line in _lines(table, table.rows[at], columns):
            yield line, key
            key = ""


def _order(table: PageTable, choice: ListChoice) -> tuple[list[int], int | None]:
    """The rows to show, and by which column; rows without a figure come last."""
    wanted = choice.search.casefold().split()
    texts = [" ".join([cell.text for cell in cells]).casefold() for cells in table.rows]
    found = [at for at, text in enumerate(texts) if all(word in text for word in wanted)]
    if not 0 < choice.sort <= len(sorting(table)):
        return found, None
    by = sorting(table)[choice.sort - 1]
    if "#" not in table.heads[by][:2]:
        return sorted(found, key=lambda at: table.rows[at][by].text.casefold()), by
    known = [at for at in found if table.rows[at][by].sort is not None]
    return [*sorted(known, key=lambda at: -(table.rows[at][by].sort or 0.0)), *(set(found) - set(known))], by


def _columns(table: PageTable, order: Sequence[int], room: int, by: int | None) -> dict[int, int]:
    """The columns that are shown, with their cells; those that would take more share what is left."""
    rows, used, axes = [table.rows[index] for index in order], table.used, table.axes
    bars = [at for at in used if any(cells[at].bar is not None for cells in rows)]
    drawn = dict.fromkeys(bars, (LEAST_BAR, MOST_BAR)) | dict.fromkeys(axes, (LEAST_AXIS, MOST_AXIS))

    def widest(at: int, texts: Iterable[str]) -> int:
        return max(map(cell_len, (_head(table.heads[at], at == by), *texts, " ")))

    shown = [at for at in range(len(table.heads)) if at in used or at == by]
    natural = {
        at: drawn[at][1] if at in drawn else widest(at, (_text(cells[at]) for cells in rows)) for at in shown
    }

    def least(at: int) -> int:
        if at in drawn or "#" in table.heads[at][:2]:
            return drawn.get(at, (natural[at],))[0]
        return min(natural[at], LEAST if at else NAMES)

    def needed(names: int = NAMES) -> int:
        return sum(min(names, least(at)) if at == 0 else least(at) for at in shown) + 2 * (len(shown) - 1)

    shorter = [at for at in shown if any(cells[at].short for cells in rows)]
    missed = [at for at in reversed(shown) if "~" in table.heads[at] and at != by]
    for at in (each for each in missed if each not in shorter):
        if needed() > room:
            shown.remove(at)
    for at in shorter if needed() > room else ():
        natural[at] = widest(at, (cells[at].short or cells[at].text for cells in rows))
    for at in (each for each in missed if each in shorter):
        if needed(SHORT_NAMES) > room:
            shown.remove(at)
    spare, found = room - needed(), {at: least(at) for at in shown}
    for at in shown if table.keys else ():  # of a list words are cut, names first
        cut = 0 if "#" in table.heads[at][:2] else min(max(0, -spare), max(0, found[at] - LEAST_NAMES))
        found[at], spare = found[at] - cut, spare + cut
    for done, at in enumerate(sorted(shown, key=lambda at: natural[at] - found[at])):
        grown = min(max(0, spare) // (len(shown) - done), natural[at] - found[at])
        found[at], spare = found[at] + grown, spare - grown
    compared = [at for at in bars if at in shown]
    return found | dict.fromkeys(compared, min((found[at] for at in compared), default=0))


def _lines(table: PageTable, cells: Sequence[Cell], columns: Mapping[int, int]) -> Iterator[Row]:
    """A row; its words go on below."""
    drawn = [_drawn(table, cells[at], at, room) for at, room in columns.items()]
    for lines in list(zip_longest(*drawn, fillvalue=piece(""))) or [()]:
        parts: list[Piece] = []
        for (text, of, click), (at, room) in zip(lines, columns.items(), strict=True):
            parts += [piece("  "), (_padded(text, room, table.heads[at]), of, click)]
        yield tuple(parts)


def _drawn(table: PageTable, cell: Cell, at: int, room: int) -> list[Piece]:
    """What stands in one column, line by line."""
    if cell.bar is not None:
        hue = cell.colour if cell.colour is not None and cell.colour in GLYPHS else "accent"
        return [piece("█" * max(cell.bar > 0, round(cell.bar * room)), hue)]
    if cell.gain is not None:
        drawn = whisker(cell.gain.achieved, cell.gain.interval, table.axes[at], room)
        return [piece(padded(drawn, room), cell.gain.side)]
    text = _text(cell)
    text = text if cell_len(text) <= room else cell.short or text
    if table.tall == 1 or "#" in table.heads[at][:2]:
        lines = [middled(text, room) if at == 0 else clipped(text, room)]
    else:
        lines = wrapped(text, room, table.tall) or [""]
    return [piece(line, cell.tone) for line in lines]


def _text(cell: Cell) -> str:
    """The words of a cell; of a name that stands whole elsewhere the beginning."""
    text = readable(cell.text)
    return clipped(text, TITLED) if cell.title else text


def _paragraph(table: PageTable, cells: Sequence[Cell], columns: Sequence[int], room: int) -> Iterator[Row]:
    """A row by its name, its figures with their heads, its sentences."""
    told = [at for at in columns if cells[at].bar is None and _text(cells[at]) not in ("", "-")]
    cut = [(_name(table.heads[at]), _text(cells[at]), "#" in table.heads[at]) for at in told]
    figures = [(head, text) for head, text, is_figure in cut[1:] if is_figure or len(text) <= LEAST]
    sentences = [f"{head}: {text}" for head, text, is_figure in cut[1:] if (head, text) not in figures]
    joined = ", ".join(f"{head} {text}".replace(" ", JOINED) for head, text in figures)
    first = [f"{head} {text}" for head, text, _ in cut[:1]]
    yield from (row("  ", line) for text in first for line in wrapped(text, room))
    for text in [joined] * bool(figures) + sentences:
        yield from (row("  ", f"  {line}") for line in wrapped(text, room - 2))


def _title(table: PageTable, at: int, cells: int, by: int | None) -> str:
    """The head of a column; of an axis its round factors."""
    scale = table.axes.get(at)
    if scale is None:
        return _head(table.heads[at], at == by)
    even = place(1.0, scale, cells)
    ticks = sorted((place(each, scale, cells), f"{each:g}x") for each in scale.factors())
    return labels([tick for tick in ticks if tick[0] == even or abs(tick[0] - even) >= TICK], cells)


def _padded(text: str, cells: int, head: str) -> str:
    return " " * (cells - cell_len(text)) + text if "#" in head[:2] else padded(text, cells)


def _name(head: str) -> str:
    return head.lstrip("~#-")


def _head(head: str, sorts: bool) -> str:
    return _name(head) + (("▼" if "#" in head[:2] else "▲") if sorts else "")


WIDTH = 80
MARGIN = 2  # cells that a screen leaves on the right
TITLES = ("title", "head")  # tones of rows that have no margin


def page_text(page: ReportPage, width: int | None = WIDTH, sections: Sequence[Section] = ()) -> str:
    """The whole page, or these of its sections; `None`: no line is wrapped."""
    about = [Line(text=" · ".join(page.about), tone="muted")] if page.about else []
    head = Section(title="", parts=[Line(text=page.title, tone="title"), *about])
    return "\n\n".join(
        text for each in (head, *(sections or page.sections)) if (text := section_text(each, width))
    )


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
