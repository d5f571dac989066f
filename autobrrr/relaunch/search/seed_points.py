"""Points to try first: what the diagnosis of the command as given would change.

In: a space, the regime, advice, CPUs. Out: points of the space, the one with all of it first, then each
change by itself, the most promising first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autobrrr.machine.kernel_text import number
from autobrrr.records import Advice, Limit, Regime
from autobrrr.relaunch.search.search_space import BATCH, WORKERS, Parameter, Point, Space

THREADS = ("env:OMP_NUM_THREADS", "env:MKL_NUM_THREADS")
MOST_SEEDS = 8
BATCH_FACTOR = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """What is known of the command as given before the search begins."""

    regime: Regime = "unknown"
    limit: Limit = "unknown"
    advice: tuple[Advice, ...] = ()
    cores: int = 1

    def names(self, beginning: str) -> bool:
        return any(each.remedy.startswith(beginning) for each in self.advice)


def seeds(space: Space, hints: Hints) -> list[Point]:
    """Points that the hints speak for; none where they say nothing of this space."""
    changes: list[tuple[int, int]] = []
    order = {each.remedy: i for i, each in enumerate(hints.advice)}
    for i, parameter in enumerate(space.parameters):
        level = _level(parameter, hints)
        if level is not None and level != parameter.given:
            changes.append((i, level))
    changes.sort(key=lambda change: order.get(space.parameters[change[0]].remedy, -1))
    found = [_changed(space, changes)] if len(changes) > 1 else []
    found += [_changed(space, [change]) for change in changes]
    possible = set(space.points())
    return [point for point in dict.fromkeys(found) if point in possible][:MOST_SEEDS]


def _level(parameter: Parameter, hints: Hints) -> int | None:
    """The level of a parameter that the hints speak for; None where they don't speak of it."""
    if parameter.remedy:
        advised = any(each.remedy == parameter.remedy for each in hints.advice)
        return 1 if advised and len(parameter.levels) > 1 else None
    if WORKERS.match(parameter.name) and "worker" in parameter.name:
        wanted = "input" in (hints.regime, hints.limit) or hints.names("loader.workers")
        return _at_most(parameter, hints.cores) if wanted else None
    if BATCH.match(parameter.name):
        given = parameter.levels[parameter.given]
        wanted = hints.regime in ("overhead", "underfilled") or hints.names("batch.larger")
        return _at_most(parameter, BATCH_FACTOR * given) if wanted and isinstance(given, int) else None
    if parameter.name in THREADS:
        wanted = hints.regime == "overhead" or hints.names("threads.intra_op")
        return _at_most(parameter, 1) if wanted else None
    return None


def _at_most(parameter: Parameter, most: int) -> int | None:
    """The highest level that is a number and no higher."""
    numbers = {i: number(str(level)) for i, level in enumerate(parameter.levels)}
    fitting = {i: known for i, known in numbers.items() if known is not None and 0 <= known <= most}
    return max(fitting, key=lambda i: fitting[i], default=None)


def _changed(space: Space, changes: Sequence[tuple[int, int]]) -> Point:
    point = list(space.base)
    for i, level in changes:
        point[i] = level
    return tuple(point)
