"""Why the host was late, gap by gap, to the nanosecond.

Every moment of a thread that launches work gets one cause: what it did then; where nothing of it
was traced, what the main thread of its process did; where that is unknown too, Python if
operators were recorded without stacks, else untraced. The host-late part of each gap is divided
by that line, so that the causes sum to it exactly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TypeVar, cast

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from autobrrr.trace.causes import host_causes
from autobrrr.trace.causes.host_causes import (
    CAUSES,
    DATA_LOADER,
    HELD_UP,
    OP_DISPATCH,
    PROFILER,
    PYTHON_CODE,
    SYNCHRONISATION,
    UNTRACED,
)
from autobrrr.trace.reading.nanoseconds import Nanoseconds
from autobrrr.trace.reading.trace_columns import (
    ANNOTATION,
    CALL,
    OPERATOR,
    OVERHEAD,
    PYTHON,
    Flags,
    Trace,
    distinct,
    median,
    used,
)
from autobrrr.trace.timeline.idle_gaps import Gaps
from autobrrr.trace.timeline.intervals import joined
from autobrrr.trace.timeline.launches import NO_LAUNCH, LaunchCalls, first_operations
from autobrrr.trace.timeline.thread_timeline import Indices, Nesting, ThreadLine, nest

T = TypeVar("T")
Marks = NDArray[np.int8]
NOT_FOUND = -1


class LateCauses(Struct, frozen=True, kw_only=True):
    """The host-late parts of gaps, divided.

    Attributes:
        by_gap_ns: shape [gaps, MARKS]: in the order of `CAUSES`, then long operators, long Python and
            operators that are short otherwise.
        after_synchronisation: shape [gaps]; the gap began while the launching thread waited for the
            device, so that the whole of it is the price of that wait.
    """

    by_gap_ns: NDArray[np.int64]
    after_synchronisation: NDArray[np.bool_]

    def shown_ns(self) -> NDArray[np.int64]:
        """Shape [gaps, causes]: what lasts long is counted where it belongs."""
        shown = self.by_gap_ns[:, : len(CAUSES)].copy()
        for mark, cause in host_causes.SHOWN_AS.items():
            shown[:, cause] += self.by_gap_ns[:, mark]
        return shown

    def totals_ns(self) -> dict[str, int]:
        return {cause: int(ns) for cause, ns in zip(CAUSES, self.shown_ns().sum(axis=0), strict=True)}


def _per_thread(make: Callable[[HostTimeline, int], T]) -> Callable[[HostTimeline, int], T]:
    """Works a method out once for each thread. Bound caches would hold the trace until a collection."""

    @wraps(make)
    def known(timeline: HostTimeline, thread: int) -> T:
        key = (make.__name__, thread)
        if key not in timeline._known:
            timeline._known[key] = make(timeline, thread)
        return cast(T, timeline._known[key])

    return known


class HostTimeline:
    """The host side of one trace: nesting and causes of each thread, made when first asked for."""

    def __init__(self, trace: Trace, calls: LaunchCalls) -> None:
        self._trace = trace
        host = trace.host
        self._launching = calls.launching
        self._own = _own_causes(trace, self._launching)
        self._by_thread = np.argsort(host.thread, kind="stable").astype(np.int32)
        self._edges = np.searchsorted(host.thread[self._by_thread], np.arange(len(trace.threads) + 1))
        self._known: dict[tuple[str, int], object] = {}
        self._captured_until = _captured_until(trace, self._launching)
        self._overhead = self._overheads()
        self._main = _main_threads(trace)
        self.has_stacks = bool((host.kind == PYTHON).any())
        self.has_operators = bool((host.kind == OPERATOR).any())

    @_per_thread
    def nesting(self, thread: int) -> Nesting:
        """All events of a thread but the profiler's own overhead, which lies on a lane of its own."""
        host, rows = self._trace.host, self._rows(thread)
        rows = rows[host.kind[rows] != OVERHEAD]
        return nest(rows, host.start[rows], host.end[rows])

    @_per_thread
    def owners(self, thread: int) -> ThreadLine:
        """The innermost event of a thread at every moment, an index into its nesting."""
        return self.nesting(thread).owners()

    def around(self, threads: NDArray[np.integer], times: Nanoseconds, wanted: Flags) -> NDArray[np.int64]:
        """The innermost wanted event around each moment on its thread, a row of HostColumns.

        Args:
            threads: Of each moment; shape [moments], as that of `times`.
            wanted: Shape [host events].
        """
        found = np.full(len(times), NOT_FOUND, np.int64)
        for thread in used(threads):
            moments = np.flatnonzero(threads == thread)
            nesting = self.nesting(thread)
            marks = nesting.inherited(np.where(wanted[nesting.row], nesting.row + 1, 0))
            owner = self.owners(thread).at(times[moments])
            if len(nesting):
                found[moments] = np.where(owner >= 0, marks[np.maximum(owner, 0)] - 1, NOT_FOUND)
        return found

    def main_thread(self, thread: int) -> int:
        """The thread that runs the training loop in the process of this one."""
        return self._main.get(self._trace.threads[thread].pid, thread)

    @_per_thread
    def causes(self, thread: int) -> ThreadLine:
        """The cause on a launching thread at every moment."""
        own = self._causes_of(thread)
        main = self.main_thread(thread)
        other = own if main == thread else self._causes_of(main)
        times = distinct(
            np.concatenate([own.time, self._overhead.time] + ([other.time] if other is not own else []))
        )
        mine, theirs, overhead = own.at(times), other.at(times), self._overhead.at(times)
        # Stacks would show Python.
        unknown = PYTHON_CODE if self.has_operators and not self.has_stacks else UNTRACED
        value = np.where(mine > 0, mine, np.where(theirs > 0, theirs, unknown))
        value[self._capturing(thread, times) & (value != DATA_LOADER)] = host_causes.INITIALISATION
        if len(times):
            first, last = self._recorded(thread)
            value[(times < first) | (times >= last)] = UNTRACED
        value = np.where(
            (overhead > 0) & (value != DATA_LOADER) & (value != SYNCHRONISATION), overhead, value
        )
        return ThreadLine(times, self._with_long(thread, times, value).astype(np.int8))

    def _with_long(
        self, thread: int, times: Nanoseconds, value: NDArray[np.signedinteger]
    ) -> NDArray[np.signedinteger]:
        """Marks single operators, and runs of Python, that last longer than dispatch ever does.

        The host computes in an operator that usually lasts. One that is short otherwise is used for the first
        time, or others keep the host from running.
        """
        if len(times) < 2:
            return value
        length = np.append(np.diff(times), 0)
        kinds = self._trace.host.kind
        for each in {thread, self.main_thread(thread)}:
            nesting = self.nesting(each)
            long = (value == OP_DISPATCH) & (length >= host_causes.LONG_OPERATOR_NS)
            if len(nesting) == 0 or not long.any():
                continue
            owner = self.owners(each).at(times)
            inner = np.maximum(owner, 0)
            long &= (owner >= 0) & (kinds[nesting.row[inner]] == OPERATOR)
            lasting = self._usually_long(each)[inner]
            value = np.where(long, np.where(lasting, host_causes.LONG_OPERATOR, HELD_UP), value)
        python = value == PYTHON_CODE
        run = np.cumsum(np.concatenate(([True], python[1:] != python[:-1]))) - 1
        lasting = np.bincount(run, length)[run] >= host_causes.LONG_PYTHON_NS
        return np.where(python & lasting, host_causes.LONG_PYTHON, value)

    def _usually_long(self, thread: int) -> Flags:
        """Operators of a thread's nesting whose like usually last: same name, and launching as they do."""
        nesting, host = self.nesting(thread), self._trace.host
        own = self.owners(thread).held_ns(len(nesting))
        launches = nesting.holding(self._launching[nesting.row])
        like = host.name[nesting.row].astype(np.int64) * 2 + launches
        found = np.zeros(len(nesting), np.bool_)
        some = (own >= host_causes.LONG_OPERATOR_NS) & (host.kind[nesting.row] == OPERATOR)
        for key in distinct(like[some]).tolist():
            found[like == key] = median(own[like == key]) >= host_causes.USUALLY_LONG_NS
        return found

    def late(self, gaps: Gaps) -> LateCauses:
        """Divide the host-late part of gaps."""
        by_gap = np.zeros((len(gaps), host_causes.MARKS), np.int64)
        after = np.zeros(len(gaps), np.bool_)
        late = np.flatnonzero((gaps.call != NO_LAUNCH) & (gaps.launched > gaps.start))
        thread = self._trace.host.thread[gaps.call[late]]
        for each in used(thread):
            rows = late[thread == each]
            line = self.causes(each)
            by_gap[rows] = _divide(line, gaps.start[rows], gaps.launched[rows])
            after[rows] = line.at(gaps.start[rows], UNTRACED) == SYNCHRONISATION
        if self._captured_until is not None:  # what comes before is the warm-up that a capture needs
            rows = np.flatnonzero(gaps.start <= self._captured_until)
            for cause in host_causes.DISPATCHING:
                by_gap[rows, host_causes.INITIALISATION] += by_gap[rows, cause]
                by_gap[rows, cause] = 0
        return LateCauses(by_gap_ns=by_gap, after_synchronisation=after)

    def busy_ns(self, threads: Sequence[int], start: int, end: int, causes: Sequence[int]) -> int:
        """How long within [start, end) at least one of the threads did one of these things itself."""
        busy = joined(*(self._causes_of(thread).spans(causes) for thread in threads))
        return int(busy.within(np.array([start]), np.array([end]))[0])

    def _rows(self, thread: int) -> Indices:
        return self._by_thread[self._edges[thread] : self._edges[thread + 1]]

    def _capturing(self, thread: int, times: Nanoseconds) -> Flags:
        """Whether a thread was capturing a graph at each time: what it launches then does not run."""
        host, rows = self._trace.host, self._rows(thread)
        begins, ends = (
            rows[self._trace.named(host.name[rows], re.compile(f"Stream{which}Capture").search)]
            for which in ("Begin", "End")
        )
        begun, ended = np.sort(host.start[begins]), np.sort(host.end[ends])
        return np.searchsorted(begun, times, "right") > np.searchsorted(ended, times, "right")

    @_per_thread
    def _causes_of(self, thread: int) -> ThreadLine:
        """The cause that a thread's own events give; 0 where there are none."""
        nesting = self.nesting(thread)
        marks = _causes_in(nesting, self._own[nesting.row], self._trace.host.kind[nesting.row])
        return self.owners(thread).marked(marks)

    def _overheads(self) -> ThreadLine:
        """The profiler's own overhead. It can't be told whose it is where a file holds several processes."""
        host = self._trace.host
        rows = np.flatnonzero(host.kind == OVERHEAD)
        busy = {self._trace.threads[each].pid for each in used(host.thread[host.kind == CALL])}
        if len(rows) == 0 or len(busy) > 1:
            return ThreadLine(np.empty(0, np.int64), np.empty(0, np.int8))
        nesting = nest(rows, host.start[rows], host.end[rows])
        return nesting.owners().marked(self._own[nesting.row])

    def _recorded(self, thread: int) -> tuple[int, int]:
        """From when to when the process of a thread has events."""
        host = self._trace.host
        rows = np.concatenate((self._rows(thread), self._rows(self.main_thread(thread))))
        return int(host.start[rows].min()), int(host.end[rows].max())


def _own_causes(trace: Trace, launching: Flags) -> Marks:
    """Of each host event the cause that its own name tells; `launching`: of each event."""
    host = trace.host
    table = np.zeros((len(trace.names) or 1, 9), np.int8)
    for key in used(host.name.astype(np.int64) * 16 + host.kind):
        name, kind = divmod(key, 16)
        table[name, kind] = host_causes.cause_of_name(trace.names[name], kind)
    own = table[host.name, host.kind]
    length = host.end - host.start
    first = trace.gpu.correlation[first_operations(trace.gpu)]
    loads = launching & (length >= host_causes.FIRST_USE_NS) & np.isin(host.correlation, first)
    slow = (own == host_causes.ALLOCATION) & (length >= host_causes.SLOW_ALLOCATION_NS)
    own[loads | slow] = host_causes.INITIALISATION
    return own


def _captured_until(trace: Trace, launching: Flags) -> int | None:
    """When the last launch was captured into a graph, where many were; `launching`: of each event."""
    host = trace.host
    rows = np.flatnonzero(launching & ~trace.named(host.name, re.compile("Graph").search))
    lost = rows[~np.isin(host.correlation[rows], trace.gpu.correlation)]
    if len(trace.gpu) == 0 or len(lost) <= host_causes.CAPTURED_FROM * len(rows):
        return None
    return int(host.start[lost].max())


def _causes_in(nesting: Nesting, own: Marks, kind: NDArray[np.int8]) -> Marks:
    """The cause of each event: a loader's or the profiler's region, its own, a region's, its kind's."""
    strong = np.where((own == DATA_LOADER) | (own == PROFILER), own, 0).astype(np.int8)
    strong = nesting.inherited(strong)
    region = nesting.inherited(np.where(kind == CALL, 0, own).astype(np.int8))
    plain = np.array([host_causes.plain_cause(each) for each in range(OVERHEAD + 1)], np.int8)
    found = np.where(strong > 0, strong, np.where(own > 0, own, region))
    return np.where(found > 0, found, plain[kind]).astype(np.int8)


def _main_threads(trace: Trace) -> dict[str, int]:
    """Of each process the thread with Python frames, steps or annotations; else that with most operators."""
    weight = np.zeros(OVERHEAD + 1)
    weight[[OPERATOR, PYTHON, ANNOTATION]] = 1, 4, 50
    sums = np.bincount(trace.host.thread, weight[trace.host.kind], len(trace.threads))
    smallest_first = np.argsort(-sums, kind="stable")[::-1].tolist()
    return {trace.threads[thread].pid: thread for thread in smallest_first if sums[thread] > 0}


def _divide(line: ThreadLine, start: Nanoseconds, end: Nanoseconds) -> NDArray[np.int64]:
    """How long each cause holds in each window [start, end); shape [windows, MARKS]."""
    out = np.zeros((len(start), host_causes.MARKS), np.int64)
    for cause in used(line.value[:-1]):
        out[:, cause] = line.spans([cause]).within(start, end)
    # What lies before the first event or behind the last is in nobody's line.
    out[:, UNTRACED] += (end - start) - out.sum(axis=1)
    return out
