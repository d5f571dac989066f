"""One device of one trace, worked out: everything that figures, verdict, advice and exports read."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from autobrrr.machine.kernel_text import number
from autobrrr.roofline.device_peaks import SpecPeaks, peaks_of
from autobrrr.trace.causes.host_places import GapGroups, find_waits, group_gaps, launched_by
from autobrrr.trace.causes.idle_causes import HostTimeline, LateCauses
from autobrrr.trace.device.time_parts import DeviceActivity, activity
from autobrrr.trace.kernels.kernel_table import KernelTable, kernel_work
from autobrrr.trace.reading.trace_columns import OPERATOR, GpuColumns, Trace, chosen, used
from autobrrr.trace.reading.trace_metadata import DeviceProperties
from autobrrr.trace.timeline.idle_gaps import Clock, Gaps, compare_clocks, find_gaps
from autobrrr.trace.timeline.intervals import Union
from autobrrr.trace.timeline.launches import NO_LAUNCH, LaunchCalls, Rows, count_launches
from autobrrr.trace.trace_records import Synchronisation


class DeviceWork(Struct, frozen=True, kw_only=True):
    """One device's operations and what is known of each."""

    label: int | str  # its number where it has one
    trace: Trace
    timeline: HostTimeline
    gpu: GpuColumns
    call: Rows
    operator: Rows  # that launched each operation, or `NOT_FOUND`, as of the next
    shaped: Rows  # the innermost operator around it whose shapes were recorded
    gaps: Gaps
    late: LateCauses
    work: KernelTable
    activity: DeviceActivity
    clock: Clock
    waits: list[Synchronisation]
    blocked: Union  # in which a launching thread waits for the device
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
    if clock.shift_ns:
        judged = find_gaps(gpu, call, trace.host, clock.shift_ns)
        judged_late = timeline.late(judged)
    properties = trace.metadata.of_device(trace.devices[code])
    peaks = peaks_of(properties.name) if properties is not None else None
    shaped = launched_by(trace, timeline, call, trace.host.shape >= 0)
    work = kernel_work(trace, gpu, shaped, properties, peaks)
    threads = used(trace.host.thread[call[call != NO_LAUNCH]])
    waits, blocked = find_waits(trace, timeline, threads, judged, judged_late)
    return DeviceWork(
        label=trace.devices[code] if (known := number(trace.devices[code])) is None else known,
        trace=trace,
        timeline=timeline,
        gpu=gpu,
        call=call,
        operator=launched_by(trace, timeline, call, trace.host.kind == OPERATOR),
        shaped=shaped,
        gaps=gaps,
        late=late,
        work=work,
        activity=activity(trace, gpu, work),
        clock=clock,
        waits=waits,
        blocked=blocked,
        properties=properties,
        peaks=peaks,
        launches=count_launches(gpu, calls, trace.host.correlation),
        threads=threads,
        judged=judged,
        judged_late=judged_late,
        groups=group_gaps(trace, timeline, gpu, judged),
    )
