"""Where the host waits for the device: synchronising calls, named by operator and Python line."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from autobrrr.trace.causes import host_causes
from autobrrr.trace.causes.host_causes import SYNCHRONISATION, cause_of_name
from autobrrr.trace.causes.idle_causes import HostTimeline, LateCauses
from autobrrr.trace.causes.launched_by import python_lines
from autobrrr.trace.reading.trace_columns import CALL, OPERATOR, Trace, coded, used
from autobrrr.trace.timeline.idle_gaps import Gaps
from autobrrr.trace.timeline.intervals import EMPTY, Union, union
from autobrrr.trace.timeline.launches import Rows
from autobrrr.trace.trace_records import Synchronisation

_SHOWN = 12
_OF_A_WAIT = [SYNCHRONISATION, host_causes.UNTRACED, *host_causes.DISPATCHING]


class Waits(Struct, frozen=True, kw_only=True):
    """Synchronising calls on the threads that launch for one device."""

    places: list[Synchronisation]
    blocked: Union
    calls: int

    @property
    def blocked_ns(self) -> int:
        return self.blocked.length_ns()


def find_waits(
    trace: Trace,
    timeline: HostTimeline,
    threads: list[int],
    gaps: Gaps,
    late: LateCauses,
) -> Waits:
    """Group the waits of some threads within the device's span; one that ends the profile is cut there.

    Args:
        threads: That launch work for the device.
    """
    start, end = gaps.span_start, gaps.span_end
    host = trace.host
    rows = np.flatnonzero((host.kind == CALL) & coded(host.thread, threads))
    waits = trace.named(host.name[rows], lambda name: cause_of_name(name, CALL) == SYNCHRONISATION)
    rows = rows[waits & (host.start[rows] < end) & (host.end[rows] > start)]
    if len(rows) == 0:
        return Waits(places=[], blocked=EMPTY, calls=0)
    begin, finish = np.maximum(host.start[rows], start), np.minimum(host.end[rows], end)
    idle = _idle_by_call(trace, rows, gaps, late)
    grouped: dict[tuple[str, str | None, str | None], list[int]] = {}
    on, times = host.thread[rows], host.start[rows]
    operator = timeline.around(on, times, host.kind == OPERATOR)
    lines = python_lines(trace, timeline, on, times)
    for row, ns, idle_ns, at, line in zip(
        rows.tolist(), (finish - begin).tolist(), idle.tolist(), operator.tolist(), lines, strict=True
    ):
        key = (trace.names[host.name[row]], trace.names[host.name[at]] if at >= 0 else None, line)
        total = grouped.setdefault(key, [0, 0, 0])
        total[0] += 1
        total[1] += ns
        total[2] += idle_ns
    places = [
        Synchronisation(
            call=call, operator=operator_, python=line, count=count, blocked_ns=ns, idle_ns=idle_ns
        )
        for (call, operator_, line), (count, ns, idle_ns) in grouped.items()
    ]
    places.sort(key=lambda each: -(each.blocked_ns + each.idle_ns))
    return Waits(places=places[:_SHOWN], blocked=union(begin, finish), calls=len(rows))


def _idle_by_call(trace: Trace, rows: Rows, gaps: Gaps, late: LateCauses) -> Rows:
    """Of each call, the host-late time of gaps that began while it waited.

    What a loader or long Python took then has advice of its own, and is there without the wait too.
    """
    host = trace.host
    idle = np.zeros(len(rows), np.int64)
    after = np.flatnonzero(late.after_synchronisation)
    thread = host.thread[gaps.call[after]]
    for each in used(thread):
        mine = np.flatnonzero(host.thread[rows] == each)
        if len(mine) == 0:
            continue
        mine = mine[np.argsort(host.start[rows[mine]], kind="stable")]
        chosen = after[thread == each]
        place = np.searchsorted(host.start[rows[mine]], gaps.start[chosen], side="right") - 1
        hit = (place >= 0) & (host.end[rows[mine[np.maximum(place, 0)]]] > gaps.start[chosen])
        np.add.at(idle, mine[place[hit]], late.by_gap_ns[chosen[hit]][:, _OF_A_WAIT].sum(axis=1))
    return idle
