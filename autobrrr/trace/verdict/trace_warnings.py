"""What a reader of the figures has to know about the trace, and what stands out in it: one line each.

Totals stay what the file says; every doubt is said here, and nothing repaired. Findings are idle time in one
place, time slices, waiting collectives.
"""

from __future__ import annotations

import numpy as np

from autobrrr.diagnosis import thresholds
from autobrrr.quantities import duration
from autobrrr.quantities import share as percent
from autobrrr.trace.device.steady_part import Steady
from autobrrr.trace.device.time_parts import PARTS
from autobrrr.trace.reading.trace_columns import OPERATOR, Trace, among
from autobrrr.trace.timeline.launches import LaunchCalls
from autobrrr.trace.timeline.trace_steps import StepMark
from autobrrr.trace.trace_records import DeviceAnalysis
from autobrrr.trace.verdict.trace_advice import group_words

HALF = 0.5  # of the idle time: a group of gaps that holds it is the one to look at
IDLE_FROM = 0.1  # of the span: less idle time is no finding


def trace_warnings(
    trace: Trace, calls: LaunchCalls, devices: list[DeviceAnalysis], marks: list[StepMark]
) -> list[str]:
    """All warnings of one trace."""
    found: list[str] = []
    if trace.damage is not None:
        found.append(f"the file is cut or damaged: {trace.damage}; figures cover what could be read")
    if trace.unread:
        what = (
            "1 entry of the list of events can't be read and was passed over;"
            if trace.unread == 1
            else f"{trace.unread} entries of the list of events can't be read and were passed over; the first"
        )
        found.append(f"{what} {trace.first_unread}")
    found += trace.irregular
    if trace.negative_host:
        found.append(f"{trace.negative_host} host events have a negative duration; counted as 0")
    found += [
        f"the profiler itself noted: {note}"
        for note in (*trace.metadata.profiler_errors, *trace.metadata.profiler_warnings)
    ]
    if not devices:
        found.append(_no_gpu(trace, calls))
        return found
    if len(devices) > 1:
        names = ", ".join(str(device.device) for device in devices)
        found.append(f"{len(devices)} devices in one file ({names}): each has figures of its own")
    found += _dropped(trace, calls, devices)
    if not bool((trace.host.kind == OPERATOR).any()):
        found.append("no operators on the host were recorded: causes of late launches stay untraced")
    found += _steps(marks)
    for device in devices:
        found += _of_device(device, len(devices) > 1)
    return found


def _no_gpu(trace: Trace, calls: LaunchCalls) -> str:
    if trace.accelerator is not None:
        return f"the operations of {trace.accelerator} are not read"
    launches = int(calls.launching.sum())
    named = trace.metadata.devices[0].name if trace.metadata.devices else None
    text = "no GPU operation in the trace"
    if launches:
        text += f", although it has {launches} launch calls: the device's activity was not recorded"
    elif named:
        text += f", although it names {named}"
    else:
        return text
    return f"{text} (profile with ProfilerActivity.CUDA)"


def _dropped(trace: Trace, calls: LaunchCalls, devices: list[DeviceAnalysis]) -> list[str]:
    launching = np.flatnonzero(calls.launching)
    if len(launching) == 0:
        return []
    ids = trace.host.correlation[launching]
    lost = int((~among(ids, trace.gpu.correlation)).sum())
    graphs = sum(device.signals.graph_launches for device in devices)
    if lost <= 0.01 * len(launching) or lost < 3:
        return []
    text = f"{lost} of {len(launching)} launch calls have no GPU operation in the file: "
    text += "they were captured into a graph or dropped, or ran after the window"
    return [text + (" (graph launches among them)" if graphs else "")]


def _steps(marks: list[StepMark]) -> list[str]:
    if not marks:
        return ["no steps are marked: call profiler.step() once a step for per-step figures"]
    found = []
    if marks[0].source == "optimizer":
        found.append("steps are not marked; taken from one optimizer step to the next")
    early = [mark for mark in marks if mark.early]
    if early:
        names = ", ".join(mark.name for mark in early[:4])
        found.append(f"{len(early)} early steps left out of per-step figures, not of totals ({names})")
    return found


def _of_device(device: DeviceAnalysis, several: bool) -> list[str]:
    where = f"device {device.device}: " if several else ""
    odd, found = device.anomalies, []
    if odd["no_duration"] or odd["negative_duration"]:
        found.append(
            f"{where}{odd['no_duration']} operations without and {odd['negative_duration']} with a"
            " negative duration;"
            " counted as 0"
        )
    if odd["no_correlation"]:
        found.append(f"{where}{odd['no_correlation']} operations have no correlation id")
    if odd["unmatched"]:
        share = device.idle.unmatched_ns / device.idle_ns if device.idle_ns else 0.0
        found.append(
            f"{where}{odd['unmatched']} of {device.gpu_events} operations have no launch call in the file;"
            f" {percent(share)} of the idle time falls to them"
        )
    if device.idle_clock_corrected is not None:
        clock = device.idle_clock_corrected
        found.append(
            f"{where}host and device clocks disagree: {clock.launched_after_start} of {clock.matched}"
            " operations begin"
            f" before their launch; idle parts stand uncorrected, idle_clock_corrected moves the device by"
            f" {duration(clock.shift_ns)}"
        )
    if device.signals.graph_launches:
        found.append(
            f"{where}{device.signals.graph_kernels} kernels come from {device.signals.graph_launches}"
            " launch calls"
            " (graphs): gaps inside a graph count as after the launch"
        )
    for part, ns in (
        ("first_use", device.first_use_ns),
        ("operators_on_host", device.long_operators_ns),
        ("held_up", device.held_up_ns),
    ):
        if ns > thresholds.LEAST_SHOWN * device.span_ns:
            found.append(f"{where}{duration(ns)} of idle: {PARTS[part].words}")
    return found


def trace_findings(figures: DeviceAnalysis, steady: Steady) -> list[str]:
    """The findings on one device."""
    found = []
    idle = figures.idle_ns / max(figures.span_ns, 1)
    if figures.gap_groups and idle >= IDLE_FROM and figures.gap_groups[0].share >= HALF:
        group = figures.gap_groups[0]
        found.append(f"{percent(group.share)} of the idle time lies in one place: {group_words(group)}")
    if steady.slice_ns is not None:
        found.append(
            f"{steady.time_slices} equal gaps of {duration(steady.slice_ns)} begin after the launch, with"
            " nothing running: another process uses the device in turn"
        )
    spread = figures.signals.collective_spread
    if spread is not None and spread >= thresholds.WAITS_TIMES:
        found.append(
            f"one collective takes up to {spread:.0f} times as long as its usual short call: it waits for a"
            " peer"
        )
    return found
