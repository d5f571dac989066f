"""Rows of text with tones and clicks, as plain tuples, boxes of them, and words over lines.

A screen turns the name of a tone into colours; a pipe prints the words, which alone must do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from rich.cells import cell_len, set_cell_size

from autobrrr.quantities import whole_words
from autobrrr.readable import readable

Tone = str  # one of `page_model.Tone`, of the palette, or of a screen
Piece = tuple[str, Tone, str]  # text, tone, action on a click (or nothing)
Row = tuple[Piece, ...]

BLANK: Row = ()
LABEL = 9  # cells of the names on the left
EDGES = 4  # cells that a box takes of its width: two edges, two blanks
MOST_LABEL = 24  # cells of a name below which the rest of its line stands
_NAMED = re.compile(r"^(\s*\S+(?: \S+)*?\s{2,})\S")  # a line: a name, and room up to its text


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Rows of one pane. `picks`: row number -> name of what can be chosen there, in order."""

    rows: list[Row]
    picks: dict[int, str] = field(default_factory=dict)


def piece(text: str, tone: Tone = "", action: str = "") -> Piece:
    return (readable(text), tone, action)


def row(*pieces: Piece | str) -> Row:
    """A row; bare strings are in the plain tone."""
    return tuple(piece(each) if isinstance(each, str) else each for each in pieces)


def labelled(name: str, *pieces: Piece | str) -> Row:
    """A row with a dim name on its left: `  step     4.2 ms`."""
    return ((f"  {name:<{LABEL}}", "muted", ""), *row(*pieces))


def heading(text: str) -> Row:
    return row(piece(f"  {text}", "title"))


def plain(line: Row) -> str:
    """The text of a row, as a screen without colours shows it."""
    return "".join(text for text, _, _ in line).rstrip()


def clipped(text: str, cells: int) -> str:
    """At most so many cells; what is cut off is marked."""
    if cell_len(text) <= cells:
        return text
    return set_cell_size(text, max(0, cells - 1)).rstrip() + "…" if cells > 0 else ""


def middled(text: str, cells: int) -> str:
    """At most so many cells; what is cut out of the middle is marked: the ends tell names apart."""
    if cell_len(text) <= cells:
        return text
    head = set_cell_size(text, max(0, (cells - 1) // 2)).rstrip()
    tail = text
    while tail and cell_len(tail) > cells - 1 - cell_len(head):
        tail = tail[1:]
    return f"{head}…{tail}" if cells > 0 else ""


def padded(text: str, cells: int) -> str:
    """Exactly so many cells."""
    return set_cell_size(clipped(text, cells), cells)


def shortened(text: str, cells: int, most: int) -> list[str]:
    """Words over at most so many lines; where they don't fit, whole clauses at the end are left out."""
    while len(wrapped(text, cells)) > most:
        shorter = text.rpartition("; ")[0] or text.rpartition(", then: ")[0]
        if not shorter:
            return wrapped(text, cells, most)
        text = shorter
    return wrapped(text, cells)


def wrapped(text: str, cells: int, most: int | None = None) -> list[str]:
    """Words over lines of at most so many cells; the last line is cut where there are too many."""
    lines: list[str] = []
    line = ""
    for word in _words(text, cells):
        longer = f"{line} {word}" if line else word
        if cell_len(longer) <= cells or not line:
            line = longer
        else:
            lines.append(line)
            line = word
    lines += [line] if line else []
    if most is not None and len(lines) > most:
        rest = " ".join(lines[most - 1 :])
        lines = [*lines[: most - 1], clipped(rest, cells)] if most > 0 else []
    return lines


def said(text: str, cells: int, tone: Tone = "", most: int | None = None) -> list[Row]:
    """Words as rows of one tone; none for none."""
    return [row(piece(line, tone)) for line in wrapped(text, cells, most)]


def _words(text: str, cells: int) -> Iterator[str]:
    """The words of a text, those that fit in no line in parts."""
    for word in map(readable, whole_words(text)):  # not before: it makes any joint a plain space
        rest, room = word, max(2, cells)
        while cell_len(rest) > room:
            part = set_cell_size(rest, room).rstrip() or rest[:1]
            yield part
            rest = rest[len(part) :]
        yield rest


def fitted(text: str, width: int) -> str:
    """Every line of a text within that many cells."""
    return "\n".join(part for line in text.split("\n") for part in hung(line, width))


def hung(line: str, width: int) -> list[str]:
    """A line that is too long, wrapped between words; what follows stands below its text, not its name."""
    if cell_len(line) <= width:
        return [line]
    label = _NAMED.match(line)
    named = label is not None and len(label.group(1)) <= min(MOST_LABEL, width // 3)
    head = label.group(1) if label and named else line[: len(line) - len(line.lstrip())][: width // 3]
    indent = len(head) if named else len(head) + 2
    first, *others = wrapped(line[len(head) :], width - indent) or [""]
    return [head + first, *(" " * indent + each for each in others)]


def filled(line: Row, cells: int) -> Row:
    """Exactly so many cells: filled with blanks, or cut with a mark."""
    spare = cells - _cells(line)
    return (*line, piece(" " * spare)) if spare > 0 else cut(line, cells)


def cut(line: Row, cells: int) -> Row:
    """At most so many cells; a mark stands where it is cut."""
    if _cells(line) <= cells:
        return line
    found: list[Piece] = []
    left = cells
    for text, tone, action in line:
        if cell_len(text) >= left:
            found.append((set_cell_size(text, left - 1) + "…", tone, action))
            break
        found.append((text, tone, action))
        left -= cell_len(text)
    return tuple(found)


def _cells(line: Row) -> int:
    return sum(cell_len(text) for text, _, _ in line)


def boxed(title: str, rows: Sequence[Row], width: int, height: int, note: str = "") -> list[Row]:
    """Rows in a box of `width` x `height` cells; `note` stands at the right of its upper edge."""
    inside, title = width - EDGES, readable(title)
    note = clipped(note, max(0, inside - len(title) - 4))
    tail = f" {note} ─" if note else ""
    line = "─" * max(0, width - 4 - len(title) - cell_len(tail))
    head = (piece("┌ ", "muted"), piece(title, "title"), piece(f" {line}{tail}┐", "muted"))
    body = [*rows[: height - 2], *[BLANK] * (height - 2 - len(rows))]
    return [
        head,
        *((piece("│ ", "muted"), *filled(each, inside), piece(" │", "muted")) for each in body),
        (piece(f"└{'─' * (width - 2)}┘", "muted"),),
    ]


def beside(left: Sequence[Row], right: Sequence[Row], left_cells: int) -> list[Row]:
    """Two columns of rows; the left one takes `left_cells`."""
    return [(*filled(one, left_cells), *other) for one, other in zip_longest(left, right, fillvalue=BLANK)]
