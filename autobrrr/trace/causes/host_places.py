"""Places on the host: what launched each operation, which gaps are alike, where the host waits.

All are read off a thread at one moment, that of a launch call, say; External ids are not needed, which
older traces number differently.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from autobrrr.trace.causes import host_causes
from autobrrr.trace.causes.host_causes import SYNCHRONISATION, cause_of_name
from autobrrr.trace.causes.idle_causes import NOT_FOUND, HostTimeline, LateCauses
from autobrrr.trace.reading.nanoseconds import Nanoseconds
from autobrrr.trace.reading.trace_columns import (
    ANNOTATION,
    CALL,
    OPERATOR,
    PYTHON,
    Flags,
    GpuColumns,
    Trace,
    median,
)
from autobrrr.trace.timeline.idle_gaps import Gaps
from autobrrr.trace.timeline.intervals import Union, union
from autobrrr.trace.timeline.launches import NO_LAUNCH, Rows
from autobrrr.trace.trace_records import GapGroup, Synchronisation

PLACE_FROM = 0.2  # of some idle time: a group of gaps that holds it is its place
_STEP = re.compile(r"^ProfilerStep[#*]|^(iteration|step)[ _#]*\d+$", re.IGNORECASE)
_NOT_USERS = re.compile(
    r"^<|^nn\.Module|site-packages/|dist-packages/|^torch/|^triton/|^transformers/|lib/python3|^threading\.py"
    r"|^contextlib\.py|^importlib|^runpy\.py|^selectors\.py|^functools\.py|^typing\.py|^asyncio/"
)
_LINE = re.compile(r"^(.+\.py)\((\d+)\): (.+)$")
_WAITS_SHOWN = 12
_OF_A_WAIT = [SYNCHRONISATION, host_causes.UNTRACED, *host_causes.DISPATCHING]


def launched_by(trace: Trace, timeline: HostTimeline, call: Rows, wanted: Flags) -> Rows:
    """The innermost wanted event of the host around each launch call: rows of HostColumns, or `NOT_FOUND`.

    Args:
        call: Rows of HostColumns, or `NO_LAUNCH`; shape [operations].
        wanted: Shape [host events].
    """
    host, known = trace.host, np.flatnonzero(call != NO_LAUNCH)
    found = np.full(len(call), NOT_FOUND, np.int64)
    found[known] = timeline.around(host.thread[call[known]], host.start[call[known]], wanted)
    return found


def python_lines(
    trace: Trace, timeline: HostTimeline, threads: NDArray[np.integer], times: Nanoseconds
) -> list[str | None]:
    """The user's own Python around each moment on its thread: "train.py:31 step"; None without stacks.

    Falls back to the innermost Python function where none looks like the user's.
    """
    host = trace.host
    python = host.kind == PYTHON
    named = timeline.around(threads, times, python & trace.named(host.name, _LINE.match))
    users = timeline.around(threads, times, python & trace.named(host.name, _is_users_own))
    rows = np.where(users == NOT_FOUND, named, users).tolist()
    return [_short_place(trace.names[host.name[row]]) if row != NOT_FOUND else None for row in rows]


class GapGroups(Struct, frozen=True, kw_only=True):
    """Gaps that are alike: ended by the same kernel, in the same annotation, at the same line of Python.

    So idle time can be said to lie in 6 gaps of 57 ms before one copy rather than in thousands.

    Attributes:
        of_gap: the group of each gap, shape [gaps].
        places: kernel, annotation and Python of each group, indices into the trace's names; -1 where there is
            none; shape [groups, 3].
    """

    of_gap: Rows
    places: Rows


def group_gaps(trace: Trace, timeline: HostTimeline, gpu: GpuColumns, gaps: Gaps) -> GapGroups:
    """Put the gaps into groups."""
    host, known = trace.host, np.flatnonzero(gaps.call != NO_LAUNCH)
    main = np.array([timeline.main_thread(each) for each in range(len(trace.threads))] or [0], np.int64)
    threads, called = main[host.thread[gaps.call[known]]], host.start[gaps.call[known]]
    places = np.full((len(gaps), 3), NOT_FOUND, np.int64)
    places[:, 0] = gpu.name[gaps.operation]
    for column, wanted in (
        (1, (host.kind == ANNOTATION) & ~trace.named(host.name, _STEP.search)),
        (2, (host.kind == PYTHON) & trace.named(host.name, _is_users_own)),
    ):
        rows = timeline.around(threads, called, wanted)
        places[known[rows != NOT_FOUND], column] = host.name[rows[rows != NOT_FOUND]]
    groups, of_gap = np.unique(places, axis=0, return_inverse=True)
    return GapGroups(of_gap=of_gap.reshape(-1), places=groups)


def largest_groups(trace: Trace, groups: GapGroups, ns: Nanoseconds, most: int) -> list[GapGroup]:
    """The groups that hold most of some part of each gap, the largest first.

    Args:
        ns: The part of each gap that counts, shape [gaps].
    """
    total = int(ns.sum())
    sums = np.bincount(groups.of_gap, ns, len(groups.places)).astype(np.int64)
    found = []
    for group in np.argsort(-sums, kind="stable")[:most].tolist():
        if sums[group] <= 0:
            break
        own = ns[(groups.of_gap == group) & (ns > 0)]
        kernel, annotation, python = groups.places[group].tolist()
        found.append(
            GapGroup(
                ended_by=trace.names[kernel],
                annotation=trace.names[annotation] if annotation != NOT_FOUND else None,
                python=_short_place(trace.names[python]) if python != NOT_FOUND else None,
                count=len(own),
                idle_ns=int(sums[group]),
                median_ns=int(median(own)),
                share=int(sums[group]) / total,
            )
        )
    return found


def find_waits(
    trace: Trace, timeline: HostTimeline, threads: list[int], gaps: Gaps, late: LateCauses
) -> tuple[list[Synchronisation], Union]:
    """The waits of some threads within the device's span, by place; one that ends the profile is cut there.

    Also all the time in which one of the threads waits.

    Args:
        threads: That launch work for the device.
    """
    start, end = gaps.span_start, gaps.span_end
    host = trace.host
    is_wait = trace.named(host.name, lambda name: cause_of_name(name, CALL) == SYNCHRONISATION)
    is_wait &= (host.kind == CALL) & np.isin(host.thread, threads) & (host.start < end) & (host.end > start)
    rows = np.flatnonzero(is_wait)
    begin, finish = np.maximum(host.start[rows], start), np.minimum(host.end[rows], end)
    # A wait costs the host-late time of gaps that began in it. What a loader or long Python took then has
    # advice of its own, and is there without the wait too.
    after = np.flatnonzero(late.after_synchronisation)
    during = timeline.around(host.thread[gaps.call[after]], gaps.start[after], is_wait)
    cost_ns = late.by_gap_ns[after][:, _OF_A_WAIT].sum(axis=1)[during != NOT_FOUND]
    idle_ns = np.bincount(during[during != NOT_FOUND], cost_ns, len(host)).astype(np.int64)
    operators = timeline.around(host.thread[rows], host.start[rows], host.kind == OPERATOR)
    lines = python_lines(trace, timeline, host.thread[rows], host.start[rows])
    grouped: dict[tuple[str, str | None, str | None], NDArray[np.int64]] = {}
    for row, ns, operator, line in zip(rows.tolist(), finish - begin, operators.tolist(), lines, strict=True):
        named = trace.names[host.name[operator]] if operator != NOT_FOUND else None
        total = grouped.setdefault((trace.names[host.name[row]], named, line), np.zeros(3, np.int64))
        total += (1, ns, idle_ns[row])
    places = [
        Synchronisation(call=call, operator=named, python=line, count=count, blocked_ns=ns, idle_ns=idle)
        for (call, named, line), (count, ns, idle) in ((key, each.tolist()) for key, each in grouped.items())
    ]
    places.sort(key=lambda each: -(each.blocked_ns + each.idle_ns))
    return places[:_WAITS_SHOWN], union(begin, finish)


def _is_users_own(name: str) -> bool:
    """Whether a Python function's name, as the profiler writes it, lies in a file of the user's."""
    return _LINE.match(name) is not None and _NOT_USERS.search(name) is None


def _short_place(name: str) -> str:
    """ "train.py:31 step" for what the profiler writes."""
    found = _LINE.match(name)
    if found is None:
        return name
    path, line, function = found.groups()
    return f"{'/'.join(path.split('/')[-2:])}:{line} {function}"
