"""Arithmetic of time intervals in integer nanoseconds: unions, their lengths, overlaps.

A union is a pair of columns, starts and ends: sorted, disjoint, none empty.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from autobrrr.trace.reading.nanoseconds import Nanoseconds


class Union(Struct, frozen=True):
    """Sorted, disjoint, non-empty intervals; shape [intervals] each."""

    start: Nanoseconds
    end: Nanoseconds

    def length_ns(self) -> int:
        return int((self.end - self.start).sum())

    def before(self, times: Nanoseconds) -> Nanoseconds:
        """For each time, how much of the union lies before it."""
        if len(self.start) == 0:
            return np.zeros(len(times), np.int64)
        done = np.concatenate(([0], np.cumsum(self.end - self.start)))
        index = np.searchsorted(self.start, times, side="right")
        inside = np.where(index > 0, self.end[index - 1] - times, 0)
        return np.asarray(done[index] - np.maximum(inside, 0), np.int64)

    def within(self, start: Nanoseconds, end: Nanoseconds) -> Nanoseconds:
        """For each interval [start, end), how much of it the union covers."""
        return self.before(end) - self.before(start)


EMPTY = Union(np.empty(0, np.int64), np.empty(0, np.int64))


def union(start: Nanoseconds, end: Nanoseconds) -> Union:
    """The union of intervals in any order; those that touch become one."""
    full = end > start
    start, end = start[full], end[full]
    if len(start) == 0:
        return EMPTY
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    first = np.concatenate(([True], start[1:] > end[:-1]))
    last = np.concatenate((first[1:], [True]))
    return Union(start[first], end[last])


def joined(*unions: Union) -> Union:
    """The union of unions."""
    each = (EMPTY, *unions)
    return union(np.concatenate([one.start for one in each]), np.concatenate([one.end for one in each]))


def overlap_ns(one: Union, other: Union) -> int:
    """How long both cover."""
    return int(other.within(one.start, one.end).sum())


def exposed_ns(own: Union, *others: Union) -> int:
    """How long one covers what none of the others does."""
    return own.length_ns() - overlap_ns(own, joined(*others))
