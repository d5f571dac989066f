"""The gaps of a device as a lane of trace events: what `--perfetto` adds to a trace."""

from __future__ import annotations

from autobrrr.records import Record
from autobrrr.trace.causes.host_causes import CAUSES
from autobrrr.trace.device.device_work import DeviceWork
from autobrrr.trace.timeline.launches import NO_LAUNCH

_SHORTEST_NS = 1_000  # shorter gaps would only be dust on the lane


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


_COLORS = {
    "in the launch call": "thread_state_runnable",
    "after the launch": "thread_state_iowait",
    "no launch in the file": "generic_work",
}


def gap_lane(device: DeviceWork) -> GapLane:
    """The explained gaps of one device, in order."""
    gaps, late, trace = device.gaps, device.late.shown_ns(), device.trace
    events: list[LaneEvent] = []
    for gap in range(len(gaps)):
        until = trace.names[device.gpu.name[gaps.operation[gap]]]
        if gaps.call[gap] == NO_LAUNCH:
            pieces = [("no launch in the file", int(gaps.start[gap]), int(gaps.end[gap]))]
        else:
            cause = CAUSES[int(late[gap].argmax())].replace("_", " ")
            pieces = [
                (f"host late: {cause}", int(gaps.start[gap]), int(gaps.launched[gap])),
                ("in the launch call", int(gaps.launched[gap]), int(gaps.returned[gap])),
                ("after the launch", int(gaps.returned[gap]), int(gaps.end[gap])),
            ]
        events += [
            LaneEvent(
                name=name,
                start_ns=start,
                length_ns=end - start,
                color=_COLORS.get(name, "terrible"),
                until=until[:200],
            )
            for name, start, end in pieces
            if end - start >= _SHORTEST_NS
        ]
    return GapLane(device=device.label, events=events)
