"""The exactness class that points turn out to have: remedies widen theirs on the job that they are on.

In: what agents in a trial say of its remedies. Out: a point's class, and why it may not be tried after all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import get_args

from autobrrr.records import ExactnessClass
from autobrrr.relaunch.search.search_space import Point, Space
from autobrrr.tuner.candidate_space import widest


@dataclass(slots=True)
class Classes:
    """Classes by point, as trials have shown them."""

    _heard: dict[Point, ExactnessClass] = field(default_factory=dict)

    def hear(self, point: Point, lines: Iterable[Mapping[str, object]]) -> None:
        """Take in what was said of the remedies of a trial."""
        said = [line.get("class") for line in lines]
        known: tuple[ExactnessClass, ...] = get_args(ExactnessClass)
        before = self._heard.get(point, "bitwise")
        self._heard[point] = widest([before, *(cls for cls in known if cls in said)])

    def of(self, space: Space, point: Point) -> ExactnessClass:
        """What its parameters say, and wider where its trials did."""
        return widest([space.cls(point), self._heard.get(point, "bitwise")])

    def problem(self, space: Space, point: Point) -> str | None:
        """Why a point may not be tried; None where it may."""
        cls = self._heard.get(point, "bitwise")
        if cls in ("bitwise", *space.allowed):
            return None
        return f"its class is {cls} on this job; add --allow {cls} to try it"
