"""Parts of the page model as rows: sentences wrapped, bars, tables that can be searched, sorted, chosen from.

A table gives way to little room: columns that can be missed go first, then names are cut in their middle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rich.cells import cell_len

from autobrrr.quantities import share
from autobrrr.readable import readable
from autobrrr.report.log_scale import LogScale
from autobrrr.report.page_model import Bar, Cell, Forest, Line, LineGroup, PageTable, Tone
from autobrrr_tui import text_bars
from autobrrr_tui.text_bars import labels, place, whisker
from autobrrr_tui.text_rows import (
    BLANK,
    Page,
    Piece,
    Row,
    clipped,
    facts,
    heading,
    labelled,
    middled,
    padded,
    piece,
    row,
    wrapped,
)

WIDE = 110  # cells of a screen from which on the details stand beside a list
LEAST, LEAST_BAR, MOST_BAR = 16, 6, 30  # cells of a column of words, of bars
LEAST_SHARE = 0.0005  # of a part of a bar
LEAST_AXIS, MOST_AXIS, TICK = 24, 60, 6  # of gains on an axis; of a tick that is not 1x
NAMES, SHORT_NAMES, LEAST_NAMES = 27, 17, 8  # of names: for which columns give way; that are left
TONES: Mapping[Tone, str] = {
    "": "plain",
    "head": "regime",
    "title": "head",
    "muted": "dim",
    "better": "good",
    "worse": "bad",
    "code": "accent",
}
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
        return [
            labelled(part.title if at == 0 else "", *line)
            for at, line in enumerate(bar_rows(part, width - 12))
        ]
    lines = [part] if isinstance(part, Line) else part.lines
    named = [(each.name, each.text, tone(each.tone)) for each in lines if each.name]
    said = [
        row(piece(f"  {text}", tone(each.tone)))
        for each in lines
        if not each.name
        for text in wrapped(each.text, width - 4)
    ]
    return [*said, *(row("  ", *each) for each in facts(named, width - 4))] if named else said


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


def tone(of: Tone) -> str:
    return TONES.get(of, of)


def chosen_table(parts: Sequence[ScreenPart]) -> PageTable | None:
    """The table whose rows can be chosen, where there is one."""
    return next((part for part in parts if isinstance(part, PageTable) and part.keys), None)


def sorting(table: PageTable) -> list[int]:
    """The columns that sort, in the order in which `s` takes them."""
    return [at for at, head in enumerate(table.heads) if _name(head) and "-" not in head[:3]]


def details(parts: Sequence[ScreenPart], key: str, width: int) -> list[Row]:
    """All that is known of one row: its cells by their heads, and what else its table holds."""
    table = chosen_table(parts)
    if table is None or key not in table.keys:
        return []
    cells = table.rows[list(table.keys).index(key)]
    known = [
        (_name(head), cell.text, tone(cell.tone))
        for head, cell in zip(table.heads, cells, strict=True)
        if _name(head)
    ]
    more = [(line.name, line.text, tone(line.tone)) for line in table.more.get(key, ())]
    return facts([each for each in known if each[0] not in {name for name, _, _ in more}] + more, width)


def detail_cells(width: int) -> int:
    """Cells of the details beside a list on a screen of this width; 0 where they open over it."""
    return min(56, max(40, width // 3)) if width >= WIDE else 0


def _table(table: PageTable, width: int, choice: ListChoice) -> Iterator[tuple[Row, str]]:
    """Title, what a search leaves out, heads, rows with their keys."""
    chosen = choice if table.keys else UNCHANGED
    order, by = _order(table, chosen)
    columns = _columns(table, order, width - 4, by)
    if table.title:
        for said in wrapped(table.title, width - 4):
            yield heading(said), ""
    if chosen.search:
        left = f"  {len(order)} of {len(table.rows)} hold {chosen.search!r}"
        yield row(piece(left, "warn"), piece("   Esc shows all", "dim")), ""
    if any(map(_name, table.heads)):
        heads = (
            _padded(_title(table, at, cells, by), cells, table.heads[at]) for at, cells in columns.items()
        )
        yield row("  ", piece("  ".join(heads).rstrip(), "dim")), ""
    for at in order[: table.most]:
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
    """The columns that are shown, with their cells; the last one takes what is left."""
    natural: dict[int, int] = {}
    for at, head in enumerate(table.heads):
        cells = [table.rows[index][at] for index in order]
        if any(cell.gain is not None for cell in cells):
            natural[at] = MOST_AXIS
        elif any(cell.bar is not None for cell in cells):
            natural[at] = MOST_BAR
        elif any(cell.text not in ("", "-") for cell in cells) or not cells or at == by:
            natural[at] = max(cell_len(_head(head, at == by)), *(cell_len(cell.text) for cell in cells), 1)
    shown = list(natural)

    def least(at: int) -> int:
        if _axis(table, at) is not None:
            return LEAST_AXIS
        if any(table.rows[index][at].bar is not None for index in order):
            return LEAST_BAR
        if "#" in table.heads[at][:2]:
            return natural[at]
        return min(natural[at], LEAST if at else NAMES)

    def needed(names: int = NAMES) -> int:
        return sum(min(names, least(at)) if at == 0 else least(at) for at in shown) + 2 * (len(shown) - 1)

    shorter = [at for at in shown if any(table.rows[index][at].short for index in order)]
    missed = [at for at in reversed(shown) if "~" in table.heads[at] and at != by]
    for at in (each for each in missed if each not in shorter):
        if needed() > room:
            shown.remove(at)
    for at in shorter if needed() > room else ():
        said = [table.rows[index][at].short or table.rows[index][at].text for index in order]
        natural[at] = max(map(cell_len, (_head(table.heads[at], at == by), *said)))
    for at in (each for each in missed if each in shorter):
        if needed(SHORT_NAMES) > room:
            shown.remove(at)
    spare, found = room - needed(), {at: least(at) for at in shown}
    for at in shown:
        words = "#" not in table.heads[at][:2]
        grown = (
            min(spare, natural[at] - found[at]) if spare > 0 else max(spare, LEAST_NAMES - found[at]) * words
        )
        found[at], spare = found[at] + grown, spare - grown
    return found


def _lines(table: PageTable, cells: Sequence[Cell], columns: Mapping[int, int]) -> Iterator[Row]:
    """A row; sentences in its last column go on below."""
    last = next(reversed(columns), None)
    parts: list[Piece] = []
    rest: list[str] = []
    for at, room in columns.items():
        cell, head = cells[at], table.heads[at]
        text = cell.text if cell_len(cell.text) <= room else cell.short or cell.text
        if cell.bar is not None:
            hue = cell.colour or ""
            drawn = GLYPHS.get(hue, "█") * max(1, round(cell.bar * room))
            parts.append(piece(padded(drawn, room), hue if hue in GLYPHS else "accent"))
        elif cell.gain is not None and (scale := _axis(table, at)) is not None:
            drawn = whisker(cell.gain.achieved, cell.gain.interval, scale, room)
            parts.append(piece(padded(drawn, room), tone(cell.gain.side)))
        elif at == last and "#" not in head[:2]:
            said = [clipped(readable(text), room)] if table.tall == 1 else wrapped(text, room, table.tall)
            first, *rest = said or [""]
            parts.append(piece(first, tone(cell.tone)))
        else:
            cut = middled(text, room) if at == 0 else clipped(text, room)
            parts.append(piece(_padded(cut, room, head), tone(cell.tone)))
    yield tuple(each for part in parts for each in (piece("  "), part))
    before = sum(columns.values()) - (columns[last] if last is not None else 0) + 2 * len(columns)
    for text in rest:
        yield row(" " * before, piece(text, tone(cells[last or 0].tone)))


def _axis(table: PageTable, at: int) -> LogScale | None:
    """What all gains of a column are drawn on, where it holds any."""
    gains = [cells[at].gain for cells in table.rows]
    known = [gain for gain in gains if gain is not None]
    return Forest(rows=known).scale if known else None


def _title(table: PageTable, at: int, cells: int, by: int | None) -> str:
    """The head of a column; of an axis its round factors."""
    scale = _axis(table, at)
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
