"""Stretches of a trace for drawing: what host threads and device did there, and the gaps explained.

In comes one device's work, out go rows that a page can draw; times are nanoseconds since the device's
first operation. Drawn are a median step where steps are marked, else the middle of the span, and what lies
around each of the longest gaps; of the rest how busy the device was. Also all gaps as a lane of trace events,
which `--perfetto` adds to a trace.
"""

from __future__ import annotations

import numpy as np

from autobrrr.records import Record
from autobrrr.trace.causes.host_causes import CAUSES
from autobrrr.trace.device.device_work import DeviceWork
from autobrrr.trace.kernels.kernel_classes import CLASSES
from autobrrr.trace.reading.trace_columns import CALL, KERNEL, PYTHON, used
from autobrrr.trace.timeline.intervals import union
from autobrrr.trace.timeline.launches import NO_LAUNCH
from autobrrr.trace.timeline.trace_steps import StepMark

MOST_OPERATIONS = 3000
LONGEST_GAPS = 10
BINS = 600  # of the whole span
_NEAR_GAP = 24  # operations on each side of a long gap
_MOST_HOST = 9000
_MOST_HOST_NEAR_GAP = 300
_DEPTH = 5
_SHORTEST_NS = 1_000  # shorter gaps would only be dust on the lane


class ViewedOperation(Record, kw_only=True, frozen=True, array_like=True):
    """One operation of the device."""

    start: int
    end: int
    lane: int
    kind: int  # into StepView.names: kernel class, or copy
    name: int  # into StepView.names
    launch: int | None  # start of its launch call
    thread: int | None  # lane of the thread that launched it


class ViewedEvent(Record, kw_only=True, frozen=True, array_like=True):
    """One event of a host thread."""

    start: int
    end: int
    thread: int
    depth: int
    call: bool
    name: int


class ViewedGap(Record, kw_only=True, frozen=True, array_like=True):
    """One gap, in up to three pieces."""

    start: int
    launched: int
    returned: int
    end: int
    cause: int  # into StepView.names: of the host-late piece; "unmatched" where there is no launch


class Stretch(Record, kw_only=True, frozen=True, array_like=True):
    """What is drawn in full."""

    start: int
    end: int


class StepView(Record, kw_only=True, frozen=True):
    """One device: `stretches[0]` is shown first."""

    title: str
    device: int | str
    span: int  # of the device
    stretches: list[Stretch]
    busy_percent: list[int]  # of each of BINS equal parts of the span
    streams: list[str]
    threads: list[str]
    operations: list[ViewedOperation]
    events: list[ViewedEvent]
    gaps: list[ViewedGap]
    names: list[str]


def step_view(device: DeviceWork, marks: list[StepMark]) -> StepView:
    """The stretches of one device that show best what its time goes to."""
    title, begin, end = _stretch(device, marks)
    windows = [(begin, end), *_around_gaps(device, begin, end)]
    names: dict[str, int] = {}
    operations, streams, threads = _operations(device, windows, names)
    origin = device.gaps.span_start
    return StepView(
        title=title,
        device=device.label,
        span=device.gaps.span_end - origin,
        stretches=[Stretch(start=start - origin, end=end - origin) for start, end in windows],
        busy_percent=_busy(device),
        streams=streams,
        threads=[device.trace.threads[thread].tid for thread in threads],
        operations=operations,
        events=[
            event
            for index, window in enumerate(windows)
            for event in _events(device, window, names, threads, _MOST_HOST_NEAR_GAP if index else _MOST_HOST)
        ],
        gaps=_gaps(device, windows, names),
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


def _around_gaps(device: DeviceWork, begin: int, end: int) -> list[tuple[int, int]]:
    """Where the longest gaps are that do not lie in that stretch, with some operations around them."""
    gaps, starts = device.gaps, np.sort(device.gpu.start)
    wanted: list[tuple[int, int]] = []
    for gap in np.argsort(gaps.start - gaps.end)[:LONGEST_GAPS].tolist():
        first, last = int(gaps.start[gap]), int(gaps.end[gap])
        if first >= begin and last <= end:
            continue
        before = max(int(np.searchsorted(starts, first)) - _NEAR_GAP, 0)
        after = min(int(np.searchsorted(starts, last)) + _NEAR_GAP, len(starts) - 1)
        wanted.append((int(starts[before]), max(int(starts[after]), last)))
    found: list[tuple[int, int]] = []
    for start, stop in sorted(wanted):  # without the first stretch, and each moment once
        pieces = [(start, min(stop, begin)), (max(start, end), stop)]
        for piece_start, piece_end in pieces:
            from_ns = max(piece_start, found[-1][1]) if found else piece_start
            if from_ns < piece_end:
                found.append((from_ns, piece_end))
    return found


def _busy(device: DeviceWork) -> list[int]:
    """How busy the device was in each part of its span, 0-100."""
    edges = np.linspace(device.gaps.span_start, device.gaps.span_end, BINS + 1).astype(np.int64)
    busy = union(device.gpu.start, device.gpu.end).within(edges[:-1], edges[1:])
    share = busy / np.maximum(np.diff(edges), 1)
    return [round(100 * part) for part in np.clip(share, 0, 1).tolist()]


def _operations(
    device: DeviceWork, windows: list[tuple[int, int]], names: dict[str, int]
) -> tuple[list[ViewedOperation], list[str], list[int]]:
    gpu, trace, origin = device.gpu, device.trace, device.gaps.span_start
    inside = np.zeros(len(gpu.start), np.bool_)
    for index, (begin, end) in enumerate(windows):
        rows = np.flatnonzero((gpu.start < end) & (gpu.end > begin))
        most = MOST_OPERATIONS + 200 if index == 0 else 4 * _NEAR_GAP
        inside[rows[np.argsort(gpu.start[rows], kind="stable")][:most]] = True
    rows = np.flatnonzero(inside)
    rows = rows[np.argsort(gpu.start[rows], kind="stable")]
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
                start=int(gpu.start[row]) - origin,
                end=int(gpu.end[row]) - origin,
                lane=lanes[int(gpu.stream[row])],
                kind=names.setdefault(kind, len(names)),
                name=names.setdefault(trace.names[gpu.name[row]], len(names)),
                launch=int(trace.host.start[by]) - origin if by != NO_LAUNCH else None,
                thread=threads.index(int(trace.host.thread[by])) if by != NO_LAUNCH else None,
            )
        )
    return found, [f"stream {lane + 1}" for lane in range(len(lanes))], threads


def _events(
    device: DeviceWork, window: tuple[int, int], names: dict[str, int], threads: list[int], most: int
) -> list[ViewedEvent]:
    """The outer levels of each thread; Python frames only where nothing else is there."""
    host, trace, origin = device.trace.host, device.trace, device.gaps.span_start
    begin, end = window
    found: list[ViewedEvent] = []
    for lane, thread in enumerate(threads):
        nesting = device.timeline.nesting(thread)
        inside = (nesting.start < end) & (nesting.end > begin)
        wanted = inside & (host.kind[nesting.row] != PYTHON)
        depth = nesting.depth_among(wanted)
        chosen = np.flatnonzero(wanted & (depth < _DEPTH))
        if len(chosen) > most:
            longest = np.argsort(-(nesting.end - nesting.start)[chosen])[:most]
            chosen = np.sort(chosen[longest])
        for index in chosen.tolist():
            row = int(nesting.row[index])
            found.append(
                ViewedEvent(
                    start=max(int(nesting.start[index]), begin) - origin,
                    end=min(int(nesting.end[index]), end) - origin,
                    thread=lane,
                    depth=int(depth[index]),
                    call=bool(host.kind[row] == CALL),
                    name=names.setdefault(trace.names[host.name[row]], len(names)),
                )
            )
    return found


def _gaps(device: DeviceWork, windows: list[tuple[int, int]], names: dict[str, int]) -> list[ViewedGap]:
    gaps, late, origin = device.gaps, device.late.shown_ns(), device.gaps.span_start
    found = []
    for begin, end in windows:
        for gap in np.flatnonzero((gaps.start < end) & (gaps.end > begin)).tolist():
            cause = "unmatched" if gaps.call[gap] == NO_LAUNCH else CAUSES[int(late[gap].argmax())]
            places = (gaps.start[gap], gaps.launched[gap], gaps.returned[gap], gaps.end[gap])
            start, launched, returned, until = (min(max(int(at), begin), end) - origin for at in places)
            found.append(
                ViewedGap(
                    start=start,
                    launched=launched,
                    returned=returned,
                    end=until,
                    cause=names.setdefault(cause, len(names)),
                )
            )
    return found


class LaneEvent(Record, kw_only=True, frozen=True):
    """One stretch of the lane."""

    name: str
    start_ns: int
    length_ns: int
    color: str  # one of the trace viewer's reserved names
    until: str  # the operation that ends the gap


class GapLane(Record, kw_only=True, frozen=True):
    device: int | str
    events: list[LaneEvent]


_LANE = {  # of each part of a gap, what it is called and its color
    "host_late": ("host late", "terrible"),
    "in_launch": ("in the launch call", "thread_state_runnable"),
    "after_launch": ("after the launch", "thread_state_iowait"),
    "unmatched": ("no launch in the file", "generic_work"),
}


def gap_lane(device: DeviceWork) -> GapLane:
    """The explained gaps of one device, in order."""
    gaps, cause = device.gaps, device.late.shown_ns().argmax(axis=1).tolist()
    events: list[LaneEvent] = []
    for part, spans in gaps.parts().items():
        name, color = _LANE[part]
        length = spans.end - spans.start
        events += [
            LaneEvent(
                name=f"{name}: {CAUSES[cause[gap]].replace('_', ' ')}" if part == "host_late" else name,
                start_ns=int(spans.start[gap]),
                length_ns=int(length[gap]),
                color=color,
                until=device.trace.names[device.gpu.name[gaps.operation[gap]]][:200],
            )
            for gap in np.flatnonzero(length >= _SHORTEST_NS).tolist()
        ]
    return GapLane(device=device.label, events=sorted(events, key=lambda each: each.start_ns))
