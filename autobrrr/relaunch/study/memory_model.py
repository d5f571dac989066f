"""The memory model: what a trial will take, from its batch size and what finished trials took.

In: batch sizes with bytes. Out: a prediction, and whether it fits into what is free. A line,
bytes = a + b * batch, is fitted by least squares; the largest miss so far and a tenth are added to be safe.
The batch is what one pass holds: steps that are accumulated do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from autobrrr.relaunch.search.search_space import Point, Space
from autobrrr.relaunch.trial.memory_use import Bytes

MARGIN = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLine:
    """bytes = fixed + each * batch; no trial so far took `miss` more than it says."""

    fixed: float
    each: float
    miss: float

    def at(self, batch: int) -> int:
        return round(self.fixed + self.each * batch)

    def safe(self, batch: int) -> float:
        return (self.at(batch) + self.miss) * (1 + MARGIN)


class MemoryModel:
    """Learns from trials that trained, and keeps the search from those that the machine can't hold.

    What a GPU can't hold ends by itself, out of memory, and hurts nobody: it is predicted, and tried.

    Args:
        free: Memory of the machine that could be taken now.
    """

    def __init__(self, space: Space, free: Callable[[], int | None]) -> None:
        self._space = space
        self._read = free
        self._free: int | None = None
        self._memory: list[tuple[int, int]] = []  # batch, bytes
        self._gpu: list[tuple[int, int]] = []

    def learn(self, point: Point, taken: Bytes) -> None:
        """A trial of this point has trained."""
        batch = self._space.batch_of(point)
        for seen, count in ((self._memory, taken.memory), (self._gpu, taken.gpu)):
            if batch is not None and count is not None:
                seen.append((batch, count))

    def look(self) -> None:
        """See what is free now."""
        self._free = self._read()

    def predicted(self, point: Point) -> int | None:
        """What a trial will take, of the GPU where it is on one; None: not two batch sizes are known."""
        batch, found = self._space.batch_of(point), line(self._gpu or self._memory)
        return None if batch is None or found is None else found.at(batch)

    def problem(self, point: Point) -> str | None:
        """Why a point is better not started; None where it fits, or nothing speaks against it.

        While only one batch size is known, a larger one may take up to as many times more. Where that
        would not fit, the next larger batch is tried first.
        """
        batch, seen, free = self._space.batch_of(point), self._memory, self._free
        if batch is None or free is None or not seen:
            return None
        found = line(seen)
        if found is not None:
            safe, said = found.safe(batch), f"it needs about {size(found.at(batch))}"
        elif batch > self._next_larger(seen[0][0]):
            most = max(count for _, count in seen) * batch / seen[0][0]
            safe, said = most * (1 + MARGIN), f"it may need up to {size(most)}"
        else:
            return None
        return f"{said} of memory, {size(free)} are free" if safe > free else None

    def left_out(self, tried: Collection[Point]) -> list[str]:
        """One line for each batch size that was not started because it would not fit."""
        left: dict[int, str] = {}
        for point in self._space.points():
            batch = self._space.batch_of(point)
            if point not in tried and batch is not None and (why := self.problem(point)) is not None:
                left.setdefault(batch, why)
        return [f"a batch of {batch} was not started: {left[batch]}" for batch in sorted(left)]

    def _next_larger(self, batch: int) -> int:
        which = self._space.batch
        levels = () if which is None else self._space.parameters[which].levels
        return min((each for each in levels if isinstance(each, int) and each > batch), default=batch)


def line(seen: list[tuple[int, int]]) -> MemoryLine | None:
    """The line through what was seen; None for fewer than two batch sizes. It never falls."""
    batches, counts = np.array(seen, dtype=np.float64).reshape(-1, 2).T
    if len(set(batches)) < 2:
        return None
    each, fixed = np.polyfit(batches, counts, 1)
    if each < 0:
        each, fixed = 0.0, counts.mean()
    miss = float(np.max(counts - (fixed + each * batches), initial=0.0))
    return MemoryLine(fixed=float(fixed), each=float(each), miss=miss)


def size(count: float) -> str:
    """Bytes for people."""
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.0f} MiB"
