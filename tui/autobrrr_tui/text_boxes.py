"""Boxes of rows with a title in their upper edge, and boxes beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from rich.cells import cell_len, set_cell_size

from autobrrr_tui.text_rows import BLANK, Piece, Row, clipped, piece

EDGES = 4  # cells that a box takes of its width: two edges, two blanks


def fitted(line: Row, cells: int) -> Row:
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
    inside = width - EDGES
    note = clipped(note, max(0, inside - len(title) - 4))
    tail = f" {note} ─" if note else ""
    line = "─" * max(0, width - 4 - len(title) - cell_len(tail))
    head = (piece("┌ ", "dim"), piece(title, "head"), piece(f" {line}{tail}┐", "dim"))
    body = [*rows[: height - 2], *[BLANK] * (height - 2 - len(rows))]
    return [
        head,
        *((piece("│ ", "dim"), *fitted(each, inside), piece(" │", "dim")) for each in body),
        (piece(f"└{'─' * (width - 2)}┘", "dim"),),
    ]


def beside(left: Sequence[Row], right: Sequence[Row], left_cells: int) -> list[Row]:
    """Two columns of rows; the left one takes `left_cells`."""
    return [(*fitted(one, left_cells), *other) for one, other in zip_longest(left, right, fillvalue=BLANK)]
