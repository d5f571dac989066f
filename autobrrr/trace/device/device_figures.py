"""From one device's work to the figures that are shown: the record, still without a verdict."""

from __future__ import annotations

from collections import Counter

import numpy as np

from autobrrr.trace.causes import host_causes
from autobrrr.trace.causes.host_causes import (
    CAUSES,
    DATA_LOADER,
    INITIALISATION,
    LONG_OPERATOR,
    LONG_PYTHON,
    SYNCHRONISATION,
)
from autobrrr.trace.causes.host_places import largest_groups, python_lines
from autobrrr.trace.causes.idle_causes import NOT_FOUND
from autobrrr.trace.device.device_work import DeviceWork
from autobrrr.trace.device.time_parts import LAUNCH_LATENCY_NS, copies, first_use_ns
from autobrrr.trace.kernels.kernel_classes import (
    CLASSES,
    COMMUNICATION,
    CONTRACTIONS,
    POINTWISE,
    uses_tensor_cores,
)
from autobrrr.trace.reading.trace_columns import KERNEL, MEMCPY, MEMSET, distinct, median, quantile, used
from autobrrr.trace.timeline.idle_gaps import idle_parts
from autobrrr.trace.timeline.intervals import exposed_ns
from autobrrr.trace.timeline.launches import NO_LAUNCH
from autobrrr.trace.trace_records import (
    ClockCorrection,
    DeviceAnalysis,
    DeviceSignals,
    HostCode,
    KernelClass,
    Stall,
    TopKernel,
)

_TOP_KERNELS = 15
_STALLS = 15
_GROUPS = 10
_SAME_COLLECTIVES = 5  # fewer calls tell nothing of how one varies


def device_figures(device: DeviceWork) -> DeviceAnalysis:
    """All figures of one device."""
    gpu, gaps, seen = device.gpu, device.gaps, device.activity
    span = gaps.span_end - gaps.span_start
    idle = int((gaps.end - gaps.start).sum())
    kernels = seen.compute, seen.communication
    late, judged = device.judged_late, device.judged
    return DeviceAnalysis(
        device=device.label,
        name=device.properties.name if device.properties is not None else None,
        rank=_rank(device),
        span_ns=span,
        busy_ns=span - idle,
        idle_ns=idle,
        idle=idle_parts(gaps),
        idle_clock_corrected=_correction(device),
        host_late_by_cause_ns=device.late.totals_ns(),
        host_late_after_synchronisation_ns=int(
            device.late.by_gap_ns[device.late.after_synchronisation].sum()
        ),
        first_use_ns=first_use_ns(gaps, gpu),
        long_operators_ns=int(late.by_gap_ns[:, LONG_OPERATOR].sum()),
        held_up_ns=int(late.by_gap_ns[:, host_causes.HELD_UP].sum()),
        gaps=len(gaps),
        gpu_events=len(gpu),
        kernel_count=int((gpu.kind == KERNEL).sum()),
        memcpy_count=int((gpu.kind == MEMCPY).sum()),
        memset_count=int((gpu.kind == MEMSET).sum()),
        streams=len(used(gpu.stream)),
        launches=device.launches,
        kernels=_classes(device),
        compute_ns=seen.compute.length_ns(),
        communication_ns=seen.communication.length_ns(),
        exposed_communication_ns=exposed_ns(seen.communication, seen.compute),
        memcpy_ns=seen.memcpy.length_ns(),
        memset_ns=seen.memset.length_ns(),
        exposed_memcpy_ns=exposed_ns(seen.memcpy, *kernels),
        exposed_host_to_device_ns=exposed_ns(seen.parts["copies_in"], *kernels),
        copies=copies(device.trace, gpu),
        top_kernels=_top_kernels(device),
        stalls=_stalls(device),
        gap_groups=largest_groups(device.trace, device.groups, judged.end - judged.start, _GROUPS),
        synchronisations=device.waits,
        host_code=_host_code(device),
        signals=_signals(device),
        anomalies=_anomalies(device),
    )


def _rank(device: DeviceWork) -> int | None:
    rank = device.trace.ranks_of_devices.get(str(device.label))
    distributed = device.trace.metadata.distributed
    return rank if rank is not None else distributed.rank if distributed is not None else None


def _correction(device: DeviceWork) -> ClockCorrection | None:
    if not device.clock.shift_ns:
        return None
    return ClockCorrection(
        shift_ns=device.clock.shift_ns,
        launched_after_start=device.clock.before_launch,
        matched=device.clock.matched,
        idle=idle_parts(device.judged),
        host_late_by_cause_ns=device.judged_late.totals_ns(),
    )


def _classes(device: DeviceWork) -> dict[str, KernelClass]:
    gpu, work = device.gpu, device.work
    length = gpu.end - gpu.start
    total = int(length[gpu.kind == KERNEL].sum())
    found = {}
    for index, name in enumerate(CLASSES):
        rows = np.flatnonzero(work.class_ == index)
        if len(rows) == 0:
            continue
        ns = int(length[rows].sum())
        by_core: Counter[bool | None] = Counter()
        if name in CONTRACTIONS:
            sums = np.bincount(gpu.name[rows], length[rows], len(device.trace.names))
            for each in np.flatnonzero(sums).tolist():
                by_core[uses_tensor_cores(device.trace.names[each])] += int(sums[each])
        flops, counted = float(work.flops[rows].sum()), rows[work.counted[rows]]
        if name == POINTWISE:
            flops, counted = float(work.elements[rows].sum()), rows[work.elements[rows] > 0]
        found[name] = KernelClass(
            ns=ns,
            count=len(rows),
            share=ns / total if total else 0.0,
            tensor_core_ns=by_core[True] if name in CONTRACTIONS else None,
            plain_ns=by_core[False] if name in CONTRACTIONS else None,
            underfilled_ns=int(length[rows][work.underfilled[rows]].sum()),
            flops=int(flops) if flops else None,
            counted_ns=int(length[counted].sum()) if flops else None,
        )
    return dict(sorted(found.items(), key=lambda item: -item[1].ns))


def _top_kernels(device: DeviceWork) -> list[TopKernel]:
    gpu, trace = device.gpu, device.trace
    rows = np.flatnonzero(gpu.kind == KERNEL)
    length = (gpu.end - gpu.start)[rows]
    sums = np.bincount(gpu.name[rows], length, len(trace.names) or 1)
    shown = []
    for name in np.argsort(-sums)[:_TOP_KERNELS].tolist():
        of_name = gpu.name[rows] == name
        mine, own = rows[of_name], length[of_name]
        if len(mine) == 0:
            continue
        operators = device.operator[mine]
        known = operators[operators != NOT_FOUND]
        most = Counter(device.trace.host.name[known].tolist()).most_common(1)
        shown.append(
            TopKernel(
                name=trace.names[name],
                class_=CLASSES[device.work.class_[mine[0]]],
                ns=int(own.sum()),
                count=len(mine),
                median_ns=int(median(own)),
                operator=trace.names[most[0][0]] if most else None,
            )
        )
    return shown


def _stalls(device: DeviceWork) -> list[Stall]:
    gaps, late, trace = device.gaps, device.late, device.trace
    length, causes = gaps.end - gaps.start, late.shown_ns()
    parts = {name: part.end - part.start for name, part in gaps.parts().items()}
    shown = []
    longest = np.argsort(-length)[:_STALLS]
    launched = longest[gaps.call[longest] != NO_LAUNCH]
    calls = gaps.call[launched]
    lines = python_lines(trace, device.timeline, trace.host.thread[calls], trace.host.start[calls])
    python = dict(zip(launched.tolist(), lines, strict=True))
    for gap in longest.tolist():
        operation = int(gaps.operation[gap])
        operator = int(device.operator[operation])
        shown.append(
            Stall(
                start_ns=int(gaps.start[gap]) - gaps.span_start,
                ns=int(length[gap]),
                part=max(parts, key=lambda name: parts[name][gap]),
                cause=CAUSES[int(causes[gap].argmax())] if parts["host_late"][gap] > 0 else None,
                ended_by=trace.names[device.gpu.name[operation]],
                operator=trace.names[trace.host.name[operator]] if operator != NOT_FOUND else None,
                python=python.get(gap),
            )
        )
    return shown


def _host_code(device: DeviceWork) -> list[HostCode]:
    """Whose Python it is, from the frame in the middle of the host-late part of each gap."""
    gaps, held = device.judged, device.judged_late.by_gap_ns[:, LONG_PYTHON]
    rows = np.flatnonzero(held)
    threads = device.trace.host.thread[gaps.call[rows]].tolist()
    mains = np.array([device.timeline.main_thread(each) for each in threads], np.int64)
    middle = (gaps.start[rows] + gaps.launched[rows]) // 2
    places = python_lines(device.trace, device.timeline, mains, middle)
    count, idle_ns = Counter(places), Counter[str | None]()
    for place, ns in zip(places, held[rows].tolist(), strict=True):
        idle_ns[place] += ns
    return [
        HostCode(python=place, count=count[place], idle_ns=ns)
        for place, ns in idle_ns.most_common()
        if place is not None
    ][:5]


def _signals(device: DeviceWork) -> DeviceSignals:
    gpu, trace, gaps, work = device.gpu, device.trace, device.gaps, device.work
    kernel, communicates = gpu.kind == KERNEL, work.of(COMMUNICATION)
    length = gpu.end - gpu.start
    span = max(gaps.span_end - gaps.span_start, 1)
    matched = np.flatnonzero((device.call != NO_LAUNCH) & kernel)
    _, which, per_call = np.unique(device.call[matched], return_inverse=True, return_counts=True)
    of_graphs, alone = per_call[per_call > 1], matched[per_call[which] == 1]
    delay = gpu.start[alone] + device.clock.shift_ns - trace.host.end[device.call[alone]]
    counted_ns = int(length[work.counted].sum())
    contraction_ns = int(length[work.of(*CONTRACTIONS)].sum())
    streamed_ns = int(length[work.bytes > 0].sum())
    own_ns = int(length[kernel & ~communicates].sum())
    causes = _host_shares(device, span)
    return DeviceSignals(
        kernels=int(kernel.sum()),
        median_kernel_ns=int(median(length[kernel])) if kernel.any() else None,
        queue_delay_median_ns=int(median(delay)) if len(alone) else None,
        queue_empty_share=float((delay <= LAUNCH_LATENCY_NS).mean()) if len(alone) else None,
        host_busy_share=causes[0],
        loader_share=causes[1],
        sync_blocked_share=min(1.0, device.blocked.length_ns() / span) if device.waits else None,
        graph_launches=len(of_graphs),
        graph_kernels=int(of_graphs.sum()),
        underfilled_share=int(length[work.underfilled].sum()) / own_ns if own_ns else None,
        shapes_recorded=_shapes_recorded(device),
        peak_known=device.peaks is not None,
        counted_flops_share=counted_ns / contraction_ns if contraction_ns and counted_ns else None,
        contraction_utilisation=float(work.ideal_ns.sum()) / counted_ns
        if counted_ns and work.ideal_ns.any()
        else None,
        bandwidth_utilisation=float(work.bytes.sum()) / device.peaks.bytes_per_s * 1e9 / streamed_ns
        if device.peaks is not None and streamed_ns > 0.02 * own_ns
        else None,
        collective_spread=_collective_spread(device),
        launch_after_start=device.clock.before_launch,
    )


def _collective_spread(device: DeviceWork) -> float | None:
    """How many times as long the longest call of one collective takes as its usual short one.

    Calls of one name and grid carry messages of one size, as far as a single rank's file tells.
    """
    gpu = device.gpu
    rows = np.flatnonzero(device.work.of(COMMUNICATION))
    length, found = (gpu.end - gpu.start)[rows], None
    keys = gpu.name[rows].astype(np.int64) << 32 | gpu.grid[rows].astype(np.int64) + 1
    for key in distinct(keys).tolist():
        own = length[keys == key]
        short = quantile(own, 0.1)
        if len(own) >= _SAME_COLLECTIVES and short > 0:
            found = max(found or 0.0, float(own.max()) / short)
    return found


def _shapes_recorded(device: DeviceWork) -> bool:
    """By what the file says of itself, or holds."""
    said = device.trace.metadata.record_shapes not in (None, 0, "0", "")
    return said or bool((device.shaped != NOT_FOUND).any())


def _host_shares(device: DeviceWork, span: int) -> tuple[float | None, float | None]:
    """Of the span: some launching thread in operators, launches or Python; the main thread in a loader."""
    if not device.threads or not (device.timeline.has_operators or device.timeline.has_stacks):
        return None, None
    gaps = device.judged
    busy = device.timeline.busy_ns(device.threads, gaps.span_start, gaps.span_end, _WORKING)
    mains = sorted({device.timeline.main_thread(each) for each in device.threads})
    loading = device.timeline.busy_ns(mains, gaps.span_start, gaps.span_end, (DATA_LOADER,))
    return busy / span, loading / span


_WORKING = tuple(
    code
    for code in range(1, len(CAUSES))
    if code not in (SYNCHRONISATION, DATA_LOADER, INITIALISATION, host_causes.PROFILER)
)


def _anomalies(device: DeviceWork) -> dict[str, int]:
    gpu = device.gpu
    order = np.argsort(gpu.start, kind="stable")
    overlaps = 0
    for stream in used(gpu.stream):
        mine = order[gpu.stream[order] == stream]
        overlaps += int((gpu.start[mine][1:] < np.maximum.accumulate(gpu.end[mine])[:-1]).sum())
    return {
        "no_duration": int((gpu.bad == 1).sum()),
        "negative_duration": int((gpu.bad == 2).sum()),
        "zero_duration": int((gpu.bad == 3).sum()),
        "no_correlation": int((gpu.correlation == 0).sum()),
        "unmatched": int((device.call == NO_LAUNCH).sum()),
        "launched_after_start": device.clock.before_launch,
        "overlap_on_one_stream": overlaps,
    }
