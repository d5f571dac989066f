"""One device of one trace, worked out: everything that figures, verdict, advice and exports read."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from autobrrr.machine.kernel_text import number
from autobrrr.roofline.device_peaks import SpecPeaks, peaks_of
from autobrrr.trace.causes.gap_groups import GapGroups, group_gaps
from autobrrr.trace.causes.idle_causes import HostTimeline, LateCauses
from autobrrr.trace.causes.launched_by import LaunchedBy, launched_by
from autobrrr.trace.causes.sync_waits import Waits, find_waits
from autobrrr.trace.device.device_activity import DeviceActivity, activity
from autobrrr.trace.kernels.kernel_table import KernelTable, kernel_work
from autobrrr.trace.reading.trace_columns import GpuColumns, Trace, chosen, used
from autobrrr.trace.reading.trace_metadata import DeviceProperties
from autobrrr.trace.timeline.idle_gaps import Clock, Gaps, compare_clocks, find_gaps
from autobrrr.trace.timeline.launches import NO_LAUNCH, LaunchCalls, Rows, count_launches


class DeviceWork(Struct, frozen=True, kw_only=True):
    """One device's operations and what is known of each."""

    label: int | str
    trace: Trace
    timeline: HostTimeline
    gpu: GpuColumns
    call: Rows
    by: LaunchedBy
    gaps: Gaps
    late: LateCauses
    work: KernelTable
    activity: DeviceActivity
    clock: Clock
    waits: Waits
    properties: DeviceProperties | None
    peaks: SpecPeaks | None
    launches: int
    threads: list[int]  # that launch for it
    judged: Gaps  # with the device's clock moved, where it disagrees with the host's
    judged_late: LateCauses
    groups: GapGroups  # of the gaps that are judged


def device_work(trace: Trace, timeline: HostTimeline, calls: LaunchCalls, code: int) -> DeviceWork:
    """Work out one device.

    Args:
        code: Its number in `trace.devices`; it has at least one operation.
    """
    rows = np.flatnonzero(trace.gpu.device == code)
    gpu = trace.gpu if len(rows) == len(trace.gpu) else chosen(trace.gpu, rows)
    call = calls.of(gpu)
    gaps = find_gaps(gpu, call, trace.host)
    late = timeline.late(gaps)
    clock = compare_clocks(gpu, call, trace.host)
    judged, judged_late = gaps, late
    if clock.skewed:
        judged = find_gaps(gpu, call, trace.host, clock.shift_ns)
        judged_late = timeline.late(judged)
    properties = trace.metadata.of_device(trace.devices[code])
    peaks = peaks_of(properties.name) if properties is not None else None
    by = launched_by(trace, timeline, call)
    threads = used(trace.host.thread[call[call != NO_LAUNCH]])
    waits = find_waits(trace, timeline, threads, judged, judged_late)
    return DeviceWork(
        label=device_label(trace.devices[code]),
        trace=trace,
        timeline=timeline,
        gpu=gpu,
        call=call,
        by=by,
        gaps=gaps,
        late=late,
        work=kernel_work(trace, gpu, by, properties, peaks),
        activity=activity(trace, gpu),
        clock=clock,
        waits=waits,
        properties=properties,
        peaks=peaks,
        launches=count_launches(gpu, calls, trace.host.correlation),
        threads=threads,
        judged=judged,
        judged_late=judged_late,
        groups=group_gaps(trace, timeline, gpu, judged),
    )


def device_label(text: str) -> int | str:
    """The number of a device where it is one."""
    known = number(text)
    return text if known is None else known
