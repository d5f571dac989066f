"""Where the points, ticks and labels of a chart lie in a picture of one size; the template draws.

In: a chart of the page model. Out: a `Picture`, which answers for every value with a place in pixels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from autobrrr.report.log_scale import LogScale, around
from autobrrr.report.page_model import Chart, Series

LEFT, RIGHT, TOP, BOTTOM = 98.0, 16.0, 12.0, 44.0
NARROW = (330.0, 300.0)  # of the picture for a telephone
LEAST_APART = 30.0  # between the labels of two ticks
LETTER = 6.6  # a letter's width
LABEL_HEIGHT = 14.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A chart in its frame."""

    chart: Chart
    left: float
    right: float
    width: float
    height: float
    up: LogScale
    across: LogScale | None  # None: named places
    top: float = TOP

    @property
    def bottom(self) -> float:
        return self.height - BOTTOM

    def x(self, value: float) -> float:
        places = len(self.chart.places or ())
        share = (value + 0.5) / max(1, places) if self.across is None else self.across.share(value)
        return round(self.left + share * (self.right - self.left), 1)

    def y(self, value: float) -> float:
        return round(self.bottom - self.up.within(value) * (self.bottom - self.top), 1)

    def path(self, line: Series) -> str:
        return " ".join(f"{self.x(point.x)},{self.y(point.y)}" for point in line.points)

    def ticks_up(self) -> Sequence[float]:
        return self.chart.up_ticks if self.chart.up_ticks is not None else self.up.marks()

    def ticks_across(self) -> list[tuple[float, str]]:
        """As many as can be read beside each other."""
        if self.across is None:
            return _apart((self.x(i), name) for i, name in enumerate(self.chart.places or ()))
        return _apart((self.x(value), f"{value:g}") for value in self.across.marks())

    def uprights(self) -> list[tuple[float, str]]:
        return [
            (self.x(value), label)
            for value, label in self.chart.uprights
            if self.across is None or self.across.low <= value <= self.across.high
        ]

    def label_heights(self) -> list[float]:
        """Of each series; labels that would lie on each other move down, at the bottom all move up."""
        lines = self.chart.lines
        wanted = [self.y(line.points[-1].y) + 4 if line.points else 4.0 for line in lines]
        named = sorted((i for i, line in enumerate(lines) if line.label), key=lambda i: wanted[i])
        above = -LABEL_HEIGHT
        for at in named:
            above = wanted[at] = max(wanted[at], above + LABEL_HEIGHT)
        limit = self.bottom
        for at in reversed(named):
            wanted[at] = min(wanted[at], limit)
            limit = wanted[at] - LABEL_HEIGHT
        return wanted

    def legend(self) -> list[tuple[str, str, str]]:
        """Name, colour and shape of each series, once."""
        return list(
            dict.fromkeys((each.name, each.colour, each.shape) for each in self.chart.lines if each.name)
        )


def pictures(chart: Chart) -> tuple[Picture, Picture]:
    """For a wide window and for a narrow one; at least one series with at least one point, all above nothing.

    Raises:
        ValueError: a value has no logarithm.
    """
    ends = max((len(line.label) for line in chart.lines), default=0)
    wide = _picture(chart, LEFT, LETTER * ends + 12 if ends else RIGHT)
    left = LETTER * max((len(chart.name_y(tick)) for tick in wide.ticks_up()), default=0) + 12
    keyed = [replace(line, name=line.name or line.label, label="") for line in chart.lines]
    return wide, _picture(replace(chart, size=NARROW, lines=keyed), left, RIGHT)


def _picture(chart: Chart, left: float, beside: float) -> Picture:
    """One picture with so much room left of its axes, and beside them."""
    points = [point for line in chart.lines for point in line.points]
    ends = [bound for point in points for bound in (point.interval or ()) if bound > 0]
    return Picture(
        chart=chart,
        left=left,
        right=chart.size[0] - beside,
        width=chart.size[0],
        height=chart.size[1],
        up=chart.up or around([*(point.y for point in points), *ends]),
        across=around((point.x for point in points), 1.0001) if chart.places is None else None,
    )


def _apart(ticks: Iterable[tuple[float, str]]) -> list[tuple[float, str]]:
    kept: list[tuple[float, str]] = []
    for at, label in ticks:
        room = max(LEAST_APART, LETTER * (len(label) + (len(kept[-1][1]) if kept else 0)) / 2 + 8)
        if not kept or at - kept[-1][0] >= room:
            kept.append((at, label))
    return kept
