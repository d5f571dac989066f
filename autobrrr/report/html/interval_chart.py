"""Gains with their intervals, drawn true on one logarithmic axis around 1x; places are percent of its width.

An interval that leaves the axis ends in an arrow: the axis goes to a factor of `FARTHEST` at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autobrrr.records.gain_words import gain_words
from autobrrr.report.log_scale import LogScale

LEAST_SPAN = 1.1  # the axis shows at least this factor to both sides
FARTHEST = 20.0
TICKS = (0.05, 0.1, 0.2, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0)
APART = 0.09  # of the axis, between two ticks


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What one row shows; None is "not measured"."""

    name: str
    achieved: float | None
    interval: Sequence[float] | None
    predicted: float | None = None
    outcome: str = ""  # in words
    is_kept: bool = False
    is_total: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GainRow:
    """One row as it is drawn."""

    gain: Gain
    words: str
    at: float | None
    predicted_at: float | None
    low_at: float | None
    high_at: float | None
    goes_lower: bool  # the interval leaves the axis
    goes_higher: bool
    side: str  # better, worse, or "" where the interval holds 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalChart:
    """Rows and the marks of the axis: percent and label."""

    rows: Sequence[GainRow]
    ticks: Sequence[tuple[float, str]]
    one_at: float


def interval_chart(gains: Sequence[Gain]) -> IntervalChart:
    """Place gains on one axis."""
    scale = gain_scale(
        value
        for gain in gains
        for value in (gain.achieved, gain.predicted, *(gain.interval or ()))
        if value is not None
    )
    return IntervalChart(
        rows=[_row(gain, scale) for gain in gains],
        ticks=[(_place(tick, scale), f"{tick:g}x") for tick in gain_ticks(scale)],
        one_at=_place(1.0, scale),
    )


def gain_scale(values: Iterable[float]) -> LogScale:
    """Around 1, with room at both ends."""
    inside = [min(max(value, 1 / FARTHEST), FARTHEST) for value in values]
    return LogScale(
        low=min([1 / LEAST_SPAN, *(value / 1.03 for value in inside)]),
        high=max([LEAST_SPAN, *(value * 1.03 for value in inside)]),
    )


def gain_ticks(scale: LogScale) -> list[float]:
    """Round factors on an axis, 1 first, far enough from each other to be read."""
    kept: list[float] = []
    for tick in sorted((each for each in TICKS if scale.low <= each <= scale.high), key=lambda one: one != 1):
        if all(abs(scale.share(tick) - scale.share(other)) > APART for other in kept):
            kept.append(tick)
    return kept


def _row(gain: Gain, scale: LogScale) -> GainRow:
    low, high = gain.interval if gain.interval is not None else (None, None)
    return GainRow(
        gain=gain,
        words="not measured" if gain.achieved is None else gain_words(gain.achieved, gain.interval),
        at=None if gain.achieved is None else _place(gain.achieved, scale),
        predicted_at=None if gain.predicted is None else _place(gain.predicted, scale),
        low_at=None if low is None else _place(low, scale),
        high_at=None if high is None else _place(high, scale),
        goes_lower=low is not None and low < scale.low,
        goes_higher=high is not None and high > scale.high,
        side="better" if low is not None and low > 1 else "worse" if high is not None and high < 1 else "",
    )


def _place(value: float, scale: LogScale) -> float:
    """Percent of the axis, from its left end."""
    return 100 * scale.share(min(max(value, scale.low), scale.high))
