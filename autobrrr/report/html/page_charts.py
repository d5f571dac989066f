"""Still charts of pages: where points, lines, ticks and labels lie in the picture; the template draws.

The vertical axis is logarithmic; the horizontal one is too, or has named places one beside the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from autobrrr.report.log_scale import LogScale, around

LEFT, RIGHT, TOP, BOTTOM = 98.0, 16.0, 12.0, 44.0
NARROW = (330.0, 300.0)  # of the picture for a telephone
LEAST_APART = 30.0  # between the labels of two ticks
LETTER = 6.6  # a letter's width
LABEL_HEIGHT = 14.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartPoint:
    """A measured point, with its interval where it has one."""

    x: float
    y: float
    words: str = ""  # that a pointer shows
    interval: Sequence[float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartLine:
    """A series; `colour` is one of the palette."""

    name: str
    colour: str
    points: Sequence[ChartPoint]
    is_joined: bool = True
    is_dotted: bool = True  # the points themselves are drawn
    is_dashed: bool = False
    label: str = ""  # beside its end; in a narrow picture below it


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartTick:
    """A place on an axis."""

    at: float
    label: str
    strong: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartKey:
    """What one colour means, below the picture."""

    name: str
    colour: str
    shape: Literal["dots", "line", "dashes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnMark:
    x: float
    y: float
    low: float | None
    high: float | None
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnLine:
    colour: str
    path: str
    dashed: bool
    marks: Sequence[DrawnMark]
    label: str
    label_x: float
    label_y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnChart:
    """What the template puts down."""

    title: str
    says: str  # the chart in words
    name_x: str
    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    up: Sequence[ChartTick]
    across: Sequence[ChartTick]
    uprights: Sequence[ChartTick]
    lines: Sequence[DrawnLine]
    legend: Sequence[ChartKey]
    narrow: DrawnChart | None = None  # the same for a narrow window


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartFrame:
    """The axes of one chart.

    `places`: names along the horizontal axis, at 0, 1, ...; None for a logarithmic axis. `up`: the vertical
    scale; None for one around the points. `strong`: a value of the vertical axis whose line is set off.
    """

    title: str
    says: str
    name_y: Callable[[float], str]
    name_x: str = ""
    places: Sequence[str] | None = None
    up: LogScale | None = None
    up_ticks: Sequence[float] | None = None
    strong: float | None = None
    uprights: Sequence[tuple[float, str]] = ()
    size: tuple[float, float] = (640.0, 320.0)


def chart(frame: ChartFrame, lines: Sequence[ChartLine]) -> DrawnChart:
    """Place everything; at least one line with at least one point, all above nothing.

    Raises:
        ValueError: a value has no logarithm.
    """
    ends = max((len(line.label) for line in lines), default=0)
    wide = _drawn(frame, lines, LEFT, LETTER * ends + 12 if ends else RIGHT)
    left = LETTER * max((len(tick.label) for tick in wide.up), default=0) + 12
    keyed = [replace(line, name=line.name or line.label, label="") for line in lines]
    return replace(wide, narrow=_drawn(replace(frame, size=NARROW), keyed, left, RIGHT))


def _drawn(frame: ChartFrame, lines: Sequence[ChartLine], left: float, beside: float) -> DrawnChart:
    """One picture with so much room left of its axes, and beside them."""
    width, height = frame.size
    right, bottom = width - beside, height - BOTTOM
    points = [point for line in lines for point in line.points]
    ends = [bound for point in points for bound in (point.interval or ()) if bound > 0]
    up = frame.up or around([*(point.y for point in points), *ends])
    across = around((point.x for point in points), 1.0001) if frame.places is None else None

    def x(value: float) -> float:
        share = (value + 0.5) / max(1, len(frame.places or ())) if across is None else across.share(value)
        return round(left + share * (right - left), 1)

    def y(value: float) -> float:
        share = up.share(min(max(value, up.low), up.high))
        return round(bottom - share * (bottom - TOP), 1)

    if across is None:
        named = [(float(i), name) for i, name in enumerate(frame.places or ())]
    else:
        named = [(value, f"{value:g}") for value in across.marks()]
    return DrawnChart(
        title=frame.title,
        says=frame.says,
        name_x=frame.name_x,
        width=width,
        height=height,
        left=left,
        right=right,
        top=TOP,
        bottom=bottom,
        up=[
            ChartTick(at=y(value), label=frame.name_y(value), strong=value == frame.strong)
            for value in (frame.up_ticks if frame.up_ticks is not None else up.marks())
        ],
        across=_apart(ChartTick(at=x(value), label=name) for value, name in named),
        uprights=[
            ChartTick(at=x(value), label=label, strong=x(value) > (left + right) / 2)
            for value, label in frame.uprights
            if across is None or across.low <= value <= across.high
        ],
        lines=_spread([_line(line, x, y, right) for line in lines], bottom),
        legend=list(dict.fromkeys(_key(line) for line in lines if line.name)),
    )


def _line(
    line: ChartLine, x: Callable[[float], float], y: Callable[[float], float], right: float
) -> DrawnLine:
    places = [(x(point.x), y(point.y)) for point in line.points]
    marks = [
        DrawnMark(
            x=at[0],
            y=at[1],
            low=None if point.interval is None else y(point.interval[0]),
            high=None if point.interval is None else y(point.interval[1]),
            words=point.words,
        )
        for point, at in zip(line.points, places, strict=True)
    ]
    return DrawnLine(
        colour=line.colour,
        path=" ".join(f"{a},{b}" for a, b in places) if line.is_joined else "",
        dashed=line.is_dashed,
        marks=marks if line.is_dotted else [],
        label=line.label,
        label_x=right + 7,
        label_y=(places[-1][1] if places else 0.0) + 4,
    )


def _key(line: ChartLine) -> ChartKey:
    return ChartKey(
        name=line.name,
        colour=line.colour,
        shape="dots" if line.is_dotted else "dashes" if line.is_dashed else "line",
    )


def _spread(lines: Sequence[DrawnLine], bottom: float) -> list[DrawnLine]:
    """Labels that would lie on each other move down; at the bottom they all move up."""
    named = sorted((i for i, line in enumerate(lines) if line.label), key=lambda i: lines[i].label_y)
    places: list[float] = []
    for index in named:
        places.append(max(lines[index].label_y, places[-1] + LABEL_HEIGHT if places else 0.0))
    limit = bottom
    for at in reversed(range(len(places))):
        places[at] = min(places[at], limit)
        limit = places[at] - LABEL_HEIGHT
    moved = dict(zip(named, places, strict=True))
    return [replace(line, label_y=moved.get(i, line.label_y)) for i, line in enumerate(lines)]


def _apart(ticks: Iterable[ChartTick]) -> list[ChartTick]:
    """As many as can be read beside each other."""
    kept: list[ChartTick] = []
    for tick in ticks:
        room = max(LEAST_APART, LETTER * (len(tick.label) + (len(kept[-1].label) if kept else 0)) / 2 + 8)
        if not kept or tick.at - kept[-1].at >= room:
            kept.append(tick)
    return kept
