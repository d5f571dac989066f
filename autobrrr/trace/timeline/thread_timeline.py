"""What runs innermost on a thread at every moment.

In come nested events of one thread, out go parents, depths and a piecewise constant line of
owners. Traces do not always nest cleanly; then the line stays defined and total, only coarser.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from autobrrr.trace.reading.nanoseconds import Nanoseconds
from autobrrr.trace.timeline.intervals import Union

Indices = NDArray[np.int32]  # into host events: half the memory of what numpy would take
NOBODY = -1
Mark = TypeVar("Mark", np.int8, np.int32)


class Nesting(Struct, frozen=True, kw_only=True):
    """Events of one thread that last, sorted by start, outer before inner; shape [events] each."""

    row: Indices  # into the columns that the events came from
    start: Nanoseconds
    end: Nanoseconds
    depth: Indices
    parent: Indices  # index into this nesting; NOBODY at the top

    def __len__(self) -> int:
        return len(self.row)

    def inherited(self, own: NDArray[Mark]) -> NDArray[Mark]:
        """Each event's own mark, or where it is 0 that of the nearest outer event that has one."""
        marks = own.copy()
        if not marks.any():
            return marks
        for rows in self._levels():
            plain = rows[marks[rows] == 0]
            outer = self.parent[plain]
            marks[plain] = np.where(outer >= 0, marks[outer], 0)
        return marks

    def holding(self, marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which events are marked, or have a marked one in them."""
        holds = marked.copy()
        for rows in reversed(self._levels()):
            inner = rows[holds[rows]]
            holds[self.parent[inner][self.parent[inner] >= 0]] = True
        return holds

    def depth_among(self, wanted: NDArray[np.bool_]) -> Indices:
        """How many of the wanted events each lies in."""
        depth = np.zeros(len(self), np.int32)
        for rows in self._levels():
            outer = self.parent[rows]
            depth[rows] = np.where(outer >= 0, depth[outer] + wanted[outer], 0)
        return depth

    def owners(self) -> ThreadLine:
        """The innermost event at every moment."""
        count = len(self)
        if count == 0:
            return ThreadLine(np.empty(0, np.int64), np.empty(0, np.int32))
        times = np.concatenate((self.start, self.end))
        owner = np.concatenate((np.arange(count, dtype=np.int32), self.parent))
        # At one moment ends come before starts; of ends the outermost counts, of starts the innermost.
        rank = np.concatenate((self.depth + 1, -self.depth))
        order = np.lexsort((rank, times))
        times, owner = times[order], owner[order]
        last = np.concatenate((times[1:] != times[:-1], [True]))
        times, owner = times[last], owner[last]
        gone = (owner >= 0) & (self.end[owner] <= times)
        return ThreadLine(times, np.where(gone, NOBODY, owner))

    def _levels(self) -> list[Indices]:
        return _split(self.depth)[1:]  # the outermost have nothing to inherit


class ThreadLine(Struct, frozen=True):
    """A value from each time on, until the next; before the first time there is none."""

    time: Nanoseconds
    value: NDArray[np.signedinteger]  # of what size suits what it says

    def marked(self, marks: NDArray[np.int8]) -> ThreadLine:
        """The same line with the mark of each owner in its place; 0 for nobody."""
        value = np.where(self.value >= 0, marks[self.value], 0) if len(marks) else self.value.astype(np.int8)
        return ThreadLine(self.time, value)

    def spans(self, values: Sequence[int]) -> Union:
        """When one of these values holds."""
        holds = np.flatnonzero(np.isin(self.value[:-1], values))
        return Union(self.time[holds], self.time[holds + 1])

    def held_ns(self, count: int) -> Nanoseconds:
        """How long each value from 0 on holds; shape [count]."""
        value, length = self.value[:-1], np.diff(self.time)
        return np.bincount(value[value >= 0], length[value >= 0], count).astype(np.int64)

    def at(self, times: Nanoseconds, otherwise: int = NOBODY) -> NDArray[np.signedinteger]:
        """The value at each time."""
        if len(self.time) == 0:
            return np.full(len(times), otherwise, self.value.dtype)
        place = np.searchsorted(self.time, times, side="right") - 1
        return np.where(place >= 0, self.value[place], otherwise)


def nest(row: NDArray[np.integer], start: Nanoseconds, end: Nanoseconds) -> Nesting:
    """Find out which event lies in which. Events without duration are left out: they own no time.

    Args:
        row: Where the events come from, shape [events].
        start: Their starts.
        end: Their ends.
    """
    lasting = np.flatnonzero(end > start)
    row, start, end = row[lasting], start[lasting], end[lasting]
    order = np.lexsort((-end, start))
    rows, start, end = row[order].astype(np.int32), start[order], end[order]
    del row, lasting, order
    depth = (np.arange(len(rows)) - np.searchsorted(np.sort(end), start, side="right")).astype(np.int32)
    return Nesting(row=rows, start=start, end=end, depth=depth, parent=_parents(depth, end, start))


def _parents(depth: Indices, end: Nanoseconds, start: Nanoseconds) -> Indices:
    """The last event before each that is one level higher and still runs."""
    parent = np.full(len(depth), NOBODY, np.int32)
    if len(depth) == 0:
        return parent
    for outer, inner in pairwise(_split(depth)):
        place = np.searchsorted(outer, inner) - 1
        found = np.where(place >= 0, outer[np.maximum(place, 0)], NOBODY)
        runs = (found >= 0) & (end[np.maximum(found, 0)] > start[inner])
        parent[inner] = np.where(runs, found, NOBODY)
    return parent


def _split(depth: Indices) -> list[Indices]:
    """The events of each depth, outermost first."""
    by_depth = np.argsort(depth, kind="stable").astype(np.int32)
    return np.split(by_depth, np.flatnonzero(np.diff(depth[by_depth])) + 1)
