"""A short stretch of a trace for drawing: what host threads and device did, and the gaps explained.

In comes one device's work, out go rows that a page can draw; times are nanoseconds since the
stretch began. A median step is taken where steps are marked, else the middle of the span.
"""

from __future__ import annotations

import numpy as np

from autobrrr.records import Record
from autobrrr.trace.causes.host_causes import CAUSES
from autobrrr.trace.device.device_work import DeviceWork
from autobrrr.trace.kernels.kernel_classes import CLASSES
from autobrrr.trace.reading.trace_columns import CALL, KERNEL, PYTHON, used
from autobrrr.trace.timeline.launches import NO_LAUNCH
from autobrrr.trace.timeline.trace_steps import StepMark

MOST_OPERATIONS = 3000
_MOST_HOST = 9000
_DEPTH = 5


class ViewedOperation(Record, kw_only=True, frozen=True):
    """One operation of the device."""

    start: int
    end: int
    lane: int
    kind: str  # kernel class, or memcpy, memset
    name: int  # into StepView.names
    launch: int | None  # start of its launch call
    thread: int | None  # lane of the thread that launched it


class ViewedEvent(Record, kw_only=True, frozen=True):
    """One event of a host thread."""

    start: int
    end: int
    thread: int
    depth: int
    call: bool
    name: int


class ViewedGap(Record, kw_only=True, frozen=True):
    """One gap, in up to three pieces."""

    start: int
    launched: int
    returned: int
    end: int
    cause: str  # of the host-late piece; "unmatched" where there is no launch


class StepView(Record, kw_only=True, frozen=True):
    """One stretch."""

    title: str
    device: int | str
    length: int
    streams: list[str]
    threads: list[str]
    operations: list[ViewedOperation]
    events: list[ViewedEvent]
    gaps: list[ViewedGap]
    names: list[str]


def step_view(device: DeviceWork, marks: list[StepMark]) -> StepView:
    """The stretch of one device that shows best what its time goes to."""
    title, begin, end = _stretch(device, marks)
    names: dict[str, int] = {}
    operations, streams, threads = _operations(device, begin, end, names)
    return StepView(
        title=title,
        device=device.label,
        length=end - begin,
        streams=streams,
        threads=[device.trace.threads[thread].tid for thread in threads],
        operations=operations,
        events=_events(device, begin, end, names, threads),
        gaps=_gaps(device, begin, end),
        names=list(names),
    )


def _stretch(device: DeviceWork, marks: list[StepMark]) -> tuple[str, int, int]:
    gpu = device.gpu
    lasting = [mark for mark in marks if not mark.early]
    if lasting:
        ranked = sorted(lasting, key=lambda mark: mark.end - mark.start)
        chosen = ranked[len(ranked) // 2]
        begin, end, title = chosen.start, chosen.end, chosen.name
        inside = np.sort(gpu.start[(gpu.start >= begin) & (gpu.start < end)])
        if len(inside) > 0:
            if len(inside) <= MOST_OPERATIONS:
                return title, begin, end
            return f"{title}, its first part", begin, int(inside[MOST_OPERATIONS])
    ranked_starts = np.sort(gpu.start)
    if len(ranked_starts) <= MOST_OPERATIONS:
        return "the whole trace", device.gaps.span_start, device.gaps.span_end
    middle = len(ranked_starts) // 2
    first, last = middle - MOST_OPERATIONS // 2, middle + MOST_OPERATIONS // 2
    return "the middle of the trace", int(ranked_starts[first]), int(ranked_starts[last])


def _operations(
    device: DeviceWork, begin: int, end: int, names: dict[str, int]
) -> tuple[list[ViewedOperation], list[str], list[int]]:
    gpu, trace = device.gpu, device.trace
    rows = np.flatnonzero((gpu.start < end) & (gpu.end > begin))
    rows = rows[np.argsort(gpu.start[rows], kind="stable")][: MOST_OPERATIONS + 200]
    lanes = {stream: lane for lane, stream in enumerate(used(gpu.stream[rows]))}
    call = device.call[rows]
    threads = used(trace.host.thread[call[call != NO_LAUNCH]])
    for main in [device.timeline.main_thread(thread) for thread in threads]:
        if main not in threads:
            threads.insert(0, main)
    found = []
    for row, by in zip(rows.tolist(), call.tolist(), strict=True):
        kind = CLASSES[device.work.class_[row]] if gpu.kind[row] == KERNEL else "copy"
        found.append(
            ViewedOperation(
                start=int(gpu.start[row]) - begin,
                end=int(gpu.end[row]) - begin,
                lane=lanes[int(gpu.stream[row])],
                kind=kind,
                name=names.setdefault(trace.names[gpu.name[row]], len(names)),
                launch=int(trace.host.start[by]) - begin if by != NO_LAUNCH else None,
                thread=threads.index(int(trace.host.thread[by])) if by != NO_LAUNCH else None,
            )
        )
    return found, [f"stream {lane + 1}" for lane in range(len(lanes))], threads


def _events(
    device: DeviceWork, begin: int, end: int, names: dict[str, int], threads: list[int]
) -> list[ViewedEvent]:
    """The outer levels of each thread; Python frames only where nothing else is there."""
    host, trace = device.trace.host, device.trace
    found: list[ViewedEvent] = []
    for lane, thread in enumerate(threads):
        nesting = device.timeline.nesting(thread)
        inside = (nesting.start < end) & (nesting.end > begin)
        wanted = inside & (host.kind[nesting.row] != PYTHON)
        depth = _shallow(nesting.parent, wanted)
        chosen = np.flatnonzero(wanted & (depth < _DEPTH))
        if len(chosen) > _MOST_HOST:
            longest = np.argsort(-(nesting.end - nesting.start)[chosen])[:_MOST_HOST]
            chosen = np.sort(chosen[longest])
        for index in chosen.tolist():
            row = int(nesting.row[index])
            found.append(
                ViewedEvent(
                    start=max(int(nesting.start[index]), begin) - begin,
                    end=min(int(nesting.end[index]), end) - begin,
                    thread=lane,
                    depth=int(depth[index]),
                    call=bool(host.kind[row] == CALL),
                    name=names.setdefault(trace.names[host.name[row]], len(names)),
                )
            )
    return found


def _shallow(parent: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """How many wanted events each lies in."""
    depth = np.zeros(len(parent), np.int64)
    for index in np.flatnonzero(wanted).tolist():
        outer = int(parent[index])
        while outer >= 0 and not wanted[outer]:
            outer = int(parent[outer])
        depth[index] = depth[outer] + 1 if outer >= 0 else 0
    return depth


def _gaps(device: DeviceWork, begin: int, end: int) -> list[ViewedGap]:
    gaps, late = device.gaps, device.late.shown_ns()
    rows = np.flatnonzero((gaps.start < end) & (gaps.end > begin))
    return [
        ViewedGap(
            start=max(int(gaps.start[gap]), begin) - begin,
            launched=min(max(int(gaps.launched[gap]), begin), end) - begin,
            returned=min(max(int(gaps.returned[gap]), begin), end) - begin,
            end=min(int(gaps.end[gap]), end) - begin,
            cause="unmatched" if gaps.call[gap] == NO_LAUNCH else CAUSES[int(late[gap].argmax())],
        )
        for gap in rows.tolist()
    ]
