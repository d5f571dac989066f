"""What a result says, whatever it is shown on: a page of sections that hold lines, tables, bars and charts.

Builders (`*_page.py`) make it once from a record; `page_text.py` and `page_template.py` draw it. No part
knows its medium: `most` and `on` say only how much of it a terminal gets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from autobrrr.quantities import duration, size
from autobrrr.quantities import share as percent
from autobrrr.records import Record
from autobrrr.records.gain_words import factor_words

Tone = Literal["", "head", "title", "strong", "muted", "better", "worse", "warn", "accent", "code"]


LEAST_SPAN = 1.1  # an axis of gains shows at least this factor to both sides
FARTHEST = 20.0  # an interval that leaves it ends in an arrow
TICKS = (0.05, 0.1, 0.2, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0)
APART = 0.09  # of the axis, between two ticks


@dataclass(frozen=True, slots=True, kw_only=True)
class LogScale:
    """From `low` to `high`, both above nothing."""

    low: float
    high: float

    def share(self, value: float) -> float:
        """0 at `low`, 1 at `high`."""
        return math.log(value / self.low) / math.log(self.high / self.low)

    def within(self, value: float) -> float:
        """The same, 0 or 1 for what lies beyond."""
        return 0.0 if value <= self.low else 1.0 if value >= self.high else self.share(value)

    def marks(self) -> list[float]:
        """Round values within: powers of ten; where they are few, their 2- and 5-fold too."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        steps = (1,) if math.log10(self.high / self.low) >= 3 else (1, 2, 5)
        found = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        return [value for value in found if self.low <= value <= self.high]

    def factors(self, apart: float = APART) -> list[float]:
        """Round factors on an axis of gains, 1 first; no two nearer than that share of the axis."""
        kept: list[float] = []
        for tick in sorted(
            (each for each in TICKS if self.low <= each <= self.high), key=lambda one: one != 1
        ):
            if all(abs(self.share(tick) - self.share(other)) > apart for other in kept):
                kept.append(tick)
        return kept


def around(values: Iterable[float], margin: float = 1.25) -> LogScale:
    """A scale that holds all values with some room at both ends.

    Raises:
        ValueError: no value, or one that has no logarithm.
    """
    found = list(values)
    if not found or min(found) <= 0:
        raise ValueError("a logarithmic scale needs values above nothing")
    return LogScale(low=min(found) / margin, high=max(found) * margin)


def gain_scale(values: Iterable[float]) -> LogScale:
    """Around 1, with room at both ends."""
    inside = [min(max(value, 1 / FARTHEST), FARTHEST) for value in values]
    return LogScale(
        low=min([1 / LEAST_SPAN, *(value / 1.03 for value in inside)]),
        high=max([LEAST_SPAN, *(value * 1.03 for value in inside)]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A sentence, with a name before it or a note behind it where it has one."""

    text: str
    name: str = ""
    note: str = ""
    tone: Tone = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineGroup:
    """Lines that belong together; `figures` are set large, `glance` answers questions."""

    lines: Sequence[Line]
    shape: Literal["list", "advice", "facts", "figures", "glance"] = "list"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Parts of one whole: name and share; a name is one of the palette."""

    title: str
    parts: Sequence[tuple[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """A gain with its interval; None is "not measured"."""

    achieved: float | None
    interval: Sequence[float] | None
    predicted: float | None = None

    @property
    def side(self) -> Tone:
        """Better or worse; "" where the interval holds 1."""
        if self.interval is None or self.interval[0] <= 1 <= self.interval[1]:
            return ""
        return "better" if self.interval[0] > 1 else "worse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of a table."""

    text: str = ""
    sort: float | None = None  # of a figure: its value, as the text has a unit
    colour: str | None = None  # of the palette: a swatch before the text
    bar: float | None = None  # 0-1, drawn in that colour
    title: str = ""
    tone: Tone = ""
    short: str = ""  # the same where there is little room
    jump: tuple[str, int, int] | None = None  # into a timeline: its name, from and to in ns
    gain: Gain | None = None  # drawn on the axis of all gains of its column

    @property
    def is_empty(self) -> bool:
        return self.text in ("", "-") and self.bar is None and self.gain is None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTable:
    """Rows under heads; before a head `#`: figures, `-`: can't be sorted, `~`: can be missed."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    most: int | None = None  # rows in a terminal
    tall: int | None = None  # lines of a cell: 1 in a list; None: as many as it needs
    keys: Sequence[str] = ()  # of each row, where rows can be chosen
    more: Mapping[str, Sequence[Line]] = field(default_factory=dict)  # by key: what else is known of a row

    @property
    def used(self) -> list[int]:
        """The columns that hold something in any row."""
        every = range(len(self.heads))
        return [at for at in every if not self.rows or any(not cells[at].is_empty for cells in self.rows)]

    @property
    def axes(self) -> dict[int, LogScale]:
        """By column that holds gains: what all of them are drawn on, logarithmic, around 1x."""
        found: dict[int, list[float | None]] = {}
        for at, cell in ((at, cell) for cells in self.rows for at, cell in enumerate(cells)):
            if cell.gain is not None:
                values = (cell.gain.achieved, cell.gain.predicted, *(cell.gain.interval or ()))
                found.setdefault(at, []).extend(values)
        return {at: gain_scale(each for each in values if each is not None) for at, values in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A measured point, with its interval where it has one; `words` are shown by a pointer."""

    x: float
    y: float
    words: str = ""
    interval: Sequence[float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points that belong together; `colour` is one of the palette."""

    name: str
    colour: str
    points: Sequence[Point]
    is_joined: bool = True
    is_dotted: bool = True  # the points themselves are drawn
    is_dashed: bool = False
    label: str = ""  # beside its end; in a narrow window below the picture

    @property
    def shape(self) -> str:
        return "dots" if self.is_dotted else "dashes" if self.is_dashed else "line"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Series over a logarithmic vertical axis; the horizontal one is too, or has named places 0, 1, ..."""

    title: str
    says: str  # the chart in words
    lines: Sequence[Series]
    name_y: Callable[[float], str]
    name_x: str = ""
    places: Sequence[str] | None = None
    up: LogScale | None = None  # None: around the points
    up_ticks: Sequence[float] | None = None
    strong: float | None = None  # a value of the vertical axis whose line is set off
    uprights: Sequence[tuple[float, str]] = ()
    height: float = 320.0  # pixels


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """What the page's own script draws from `data`, JSON; a terminal leaves it out."""

    shape: Literal["timeline", "steps"]
    name: str
    says: str
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Parts under a title; those `beside` each other share a row, those folded open at a press."""

    title: str
    parts: Sequence[Part]
    on: Literal["both", "page", "text"] = "both"
    beside: bool = False
    fold: Literal["", "open", "closed"] = ""


Part: TypeAlias = Line | LineGroup | Bar | PageTable | Chart | Drawing | Section


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPage:
    """A whole page; `data` can be saved from it under the name `file`; a short text holds `brief`."""

    kind: str
    title: str
    about: Sequence[str]
    sections: Sequence[Section]
    data: Record
    file: str
    brief: Sequence[Section] = ()

    def drawings(self) -> Iterator[Drawing]:
        yield from _drawings(self.sections)


def _drawings(parts: Sequence[Part]) -> Iterator[Drawing]:
    for part in parts:
        if isinstance(part, Section):
            yield from _drawings(part.parts)
        elif isinstance(part, Drawing):
            yield part


Value: TypeAlias = "Cell | str | float | None"


def figure(text: str, value: float | None) -> Cell:
    """A figure, sorted by its value."""
    return Cell(text=text, sort=value)


UNITS: Mapping[str, Callable[[float | None], str]] = {
    "ns": duration,
    "share": lambda value: "" if value is None else percent(value),
    "count": lambda value: "-" if value is None else str(value),
    "bytes": size,
    "factor": factor_words,
}


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[Value]], **more: object) -> PageTable:
    """A table of plain values: a head such as `took:ns` names the unit of its figures."""
    named = [_head(each) for each in heads]
    drawn = [[_cell(value, unit) for value, (_, unit) in zip(row, named, strict=True)] for row in rows]
    return PageTable(title=title, heads=[head for head, _ in named], rows=drawn, **more)  # type: ignore[arg-type]


def _head(text: str) -> tuple[str, str]:
    """A head as a table has it, and the unit."""
    name, _, unit = text.partition(":")
    if not unit or "#" in name:
        return name, unit
    return (f"~#{name[1:]}" if name.startswith("~") else f"#{name}"), unit


def _cell(value: Value, unit: str) -> Cell:
    if isinstance(value, Cell):
        return value
    if isinstance(value, str):
        return Cell(text=value)
    return figure(UNITS[unit](value), value)


def bar(share: float, colour: str) -> Cell:
    """A bar as wide as its share."""
    return Cell(bar=min(max(share, 0.0), 1.0), colour=colour)


def listed(texts: Sequence[str]) -> LineGroup:
    return LineGroup(lines=[Line(text=text) for text in texts])


def section(title: str, *parts: Part | None, **where: object) -> Section:
    """A section of the parts that there are; a table without rows is none."""
    there = [
        part for part in parts if part is not None and not (isinstance(part, PageTable) and not part.rows)
    ]
    return Section(title=title, parts=there, **where)  # type: ignore[arg-type]


def filled(*sections: Section) -> list[Section]:
    """The sections that hold something."""
    return [each for each in sections if each.parts]
