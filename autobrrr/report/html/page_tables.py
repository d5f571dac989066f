"""Tables of pages as data: what stands in a cell, and by what its column is sorted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell."""

    text: str = ""
    sort: float | None = None  # of a figure: its value, as the text has a unit
    colour: str | None = None  # of the palette: a swatch before the text
    bar: float | None = None  # 0-1, drawn in that colour
    title: str = ""
    tone: Literal["", "better", "worse", "muted"] = ""
    code: bool = False
    jump: tuple[str, int, int] | None = None  # into a timeline: its name, from and to in ns


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTable:
    """Rows under heads; a head that begins with `#` is one of figures, `-` one that can't be sorted."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]


def words(*texts: str) -> list[Cell]:
    """A row of plain text."""
    return [Cell(text=text) for text in texts]


def figure(text: str, value: float | None) -> Cell:
    """A figure, sorted by its value."""
    return Cell(text=text, sort=value)


def swatch(text: str, colour: str) -> Cell:
    """Text behind a spot of a colour of the palette."""
    return Cell(text=text, colour=colour)


def bar(share: float, colour: str) -> Cell:
    """A bar as wide as its share."""
    return Cell(bar=min(max(share, 0.0), 1.0), colour=colour)
