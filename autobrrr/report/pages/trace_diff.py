"""Two traces compared: how idle the devices are and why, which kernels take how long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

import msgspec

from autobrrr.errors import UsageError
from autobrrr.report.pages.side_by_side import (
    NO_AB_TEST,
    ComparedAnalysis,
    ComparedFigure,
    ComparedWord,
    SideBySide,
    compared,
    judged,
    said,
)
from autobrrr.report.pages.trace_page import idle_causes, plain
from autobrrr.trace.trace_records import Analysis, DeviceAnalysis, TraceAnalysis

MOST_KERNELS = 12
NAME_LETTERS = 60
LESS_IS_BETTER = ("idle", "communication, exposed", "copies, exposed")


def compare_traces(before: Analysis, after: Analysis) -> ComparedAnalysis:
    """Both, and how they compare.

    Raises:
        UsageError: one of them is not one trace of one device.
    """
    both = [_only(before), _only(after)]
    comparison = SideBySide(
        kind="traces",
        before=both[0].file,
        after=both[1].file,
        words=list(_words(both)),
        figures=list(_figures(both)),
        caveats=[*_caveats(*both), NO_AB_TEST],
    )
    return ComparedAnalysis(traces=both, comparison=comparison)


def _only(analysis: Analysis) -> TraceAnalysis:
    if len(analysis.traces) != 1 or len(analysis.traces[0].devices) != 1:
        raise UsageError(
            "--diff compares one trace of one device with another", "name the trace of one rank of each run"
        )
    return analysis.traces[0]


def _words(both: Sequence[TraceAnalysis]) -> Iterator[ComparedWord]:
    yield said("GPU", [each.gpu or "unknown" for each in both])
    yield from judged(both)


def _figures(both: Sequence[TraceAnalysis]) -> Iterator[ComparedFigure]:
    """Steps in time; what is known of the whole trace alone as shares: traces differ in length."""
    devices, whole = [each.devices[0] for each in both], [step_medians(each) for each in both]
    for name, less in (("step", True), ("busy", None), ("idle", True)):
        told = "median" if name == "step" else f"of it {name}"
        yield compared("step", "ns", told, [each.get(name) for each in whole], less)
    yield from _shares("device, share of its time", devices, [_device_times(each) for each in devices])
    idle = [{told: ns for ns, _, told in idle_causes(each)} for each in devices]
    yield from _shares("idle by cause, share of all time", devices, idle)
    kernels = [{name: kind.ns for name, kind in each.kernels.items()} for each in devices]
    yield from _shares("kernels by class, share of all time", devices, kernels)
    counted = "in the whole trace"
    yield compared(counted, "count", "kernels", [each.kernel_count for each in devices])
    yield compared(counted, "count", "launches", [each.launches for each in devices])
    yield compared(counted, "count", "steps measured", [each.step_ns.count for each in both])
    yield from _kernels(*devices)


def _device_times(device: DeviceAnalysis) -> dict[str, int]:
    return {
        "busy": device.busy_ns,
        "idle": device.idle_ns,
        "communication, exposed": device.exposed_communication_ns,
        "copies, exposed": device.exposed_memcpy_ns,
    }


def _shares(
    group: str, devices: Sequence[DeviceAnalysis], times_ns: Sequence[Mapping[str, int]]
) -> Iterator[ComparedFigure]:
    """Of each device's span; a name that one of them lacks took none."""
    for name in dict.fromkeys([*times_ns[0], *times_ns[1]]):
        parts = [
            times.get(name, 0) / max(each.span_ns, 1) for times, each in zip(times_ns, devices, strict=True)
        ]
        yield compared(group, "share", name, parts, True if name in LESS_IS_BETTER else None)


def step_medians(trace: TraceAnalysis) -> dict[str, float]:
    """Of the device in whole steps that are not early ones: the step, busy, idle; ns. Empty without steps."""
    found: dict[str, float] = {}
    if trace.step_ns.median is not None:
        found["step"] = trace.step_ns.median
    whole = [each for each in trace.steps if each.devices and not (each.early or each.partial)]
    if whole:
        found["busy"] = median(each.devices[0].busy_ns for each in whole)
        found["idle"] = median(sum(msgspec.structs.astuple(each.devices[0].idle)) for each in whole)
    return found


def _kernels(before: DeviceAnalysis, after: DeviceAnalysis) -> Iterator[ComparedFigure]:
    """Those that are among the longest of both: median time of one."""
    theirs = {kernel.name: kernel for kernel in after.top_kernels}
    both = [kernel for kernel in before.top_kernels if kernel.name in theirs]
    for kernel in both[:MOST_KERNELS]:
        times = (kernel.median_ns, theirs[kernel.name].median_ns)
        yield compared("one kernel, median", "ns", plain(kernel.name)[:NAME_LETTERS], times, True)


def _caveats(before: TraceAnalysis, after: TraceAnalysis) -> Iterator[str]:
    if before.gpu != after.gpu:
        yield f"The GPUs differ: {before.gpu or 'unknown'}, then {after.gpu or 'unknown'}."
    if before.rank != after.rank:
        ranks = ["unknown" if each.rank is None else str(each.rank) for each in (before, after)]
        yield f"The ranks differ: {ranks[0]}, then {ranks[1]}."
    for trace in (before, after):
        if trace.step_ns.count < 2:
            counted = "no step" if trace.step_ns.count == 0 else "1 step"
            yield f"{trace.file} shows {counted}: its step time says little."
