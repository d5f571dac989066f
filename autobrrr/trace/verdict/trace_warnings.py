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
from autobrrr.trace.reading.trace_columns import OPERATOR, Trace
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
    entries = (
        "1 entry of the list of events can't be read and was passed over;"
        if trace.unread == 1
        else f"{trace.unread} entries of the list of events can't be read and were passed over; the first"
    )
    of_file = _said(
        (trace.damage, f"the file is cut or damaged: {trace.damage}; figures cover what could be read"),
        (trace.unread, f"{entries} {trace.first_unread}"),
        *((True, odd) for odd in trace.irregular),
        (trace.negative_host, f"{trace.negative_host} host events have a negative duration; counted as 0"),
        *((True, f"the profiler itself noted: {note}") for note in trace.metadata.profiler_errors),
        *((True, f"the profiler itself noted: {note}") for note in trace.metadata.profiler_warnings),
    )
    if not devices:
        return [*of_file, _no_gpu(trace, calls)]
    names = ", ".join(str(device.device) for device in devices)
    several, has_operators = len(devices) > 1, bool((trace.host.kind == OPERATOR).any())
    return [
        *of_file,
        *_said(
            (several, f"{len(devices)} devices in one file ({names}): each has figures of its own"),
            _dropped(trace, calls, devices),
            (
                not has_operators,
                "no operators on the host were recorded: causes of late launches stay untraced",
            ),
            *_steps(marks),
        ),
        *(said for device in devices for said in _of_device(device, several)),
    ]


def _said(*lines: tuple[object, str]) -> list[str]:
    """The lines that hold."""
    return [text for holds, text in lines if holds]


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
    return f"{text} (profile with ProfilerActivity.CUDA)" if launches or named else text


def _dropped(trace: Trace, calls: LaunchCalls, devices: list[DeviceAnalysis]) -> tuple[bool, str]:
    ids = trace.host.correlation[calls.launching]
    lost = int((~np.isin(ids, trace.gpu.correlation)).sum())
    graphs = any(device.signals.graph_launches for device in devices)
    text = f"{lost} of {len(ids)} launch calls have no GPU operation in the file: "
    text += "they were captured into a graph or dropped, or ran after the window"
    text += " (graph launches among them)" if graphs else ""
    return lost > 0.01 * len(ids) and lost >= 3, text


def _steps(marks: list[StepMark]) -> list[tuple[object, str]]:
    early = [mark.name for mark in marks if mark.early]
    names = ", ".join(early[:4])
    between = any(mark.source == "optimizer" for mark in marks)
    return [
        (not marks, "no steps are marked: call profiler.step() once a step for per-step figures"),
        (between, "steps are not marked; taken from one optimizer step to the next"),
        (early, f"{len(early)} early steps left out of per-step figures, not of totals ({names})"),
    ]


def _of_device(device: DeviceAnalysis, several: bool) -> list[str]:
    odd, seen, clock = device.anomalies, device.signals, device.idle_clock_corrected
    unmatched = percent(device.idle.unmatched_ns / max(device.idle_ns, 1))
    found = _said(
        (
            odd["no_duration"] or odd["negative_duration"],
            f"{odd['no_duration']} operations without and {odd['negative_duration']} with a"
            " negative duration; counted as 0",
        ),
        (odd["no_correlation"], f"{odd['no_correlation']} operations have no correlation id"),
        (
            odd["unmatched"],
            f"{odd['unmatched']} of {device.gpu_events} operations have no launch call in the file;"
            f" {unmatched} of the idle time falls to them",
        ),
        (
            clock,
            f"host and device clocks disagree: {clock.launched_after_start} of {clock.matched} operations"
            " begin before their launch; idle parts stand uncorrected, idle_clock_corrected moves the device"
            f" by {duration(clock.shift_ns)}"
            if clock is not None
            else "",
        ),
        (
            seen.graph_launches,
            f"{seen.graph_kernels} kernels come from {seen.graph_launches} launch calls (graphs): gaps inside"
            " a graph count as after the launch",
        ),
        *(
            (ns > thresholds.LEAST_SHOWN * device.span_ns, f"{duration(ns)} of idle: {PARTS[part].words}")
            for part, ns in (
                ("first_use", device.first_use_ns),
                ("operators_on_host", device.long_operators_ns),
                ("held_up", device.held_up_ns),
            )
        ),
    )
    return [f"device {device.device}: {said}" for said in found] if several else found


def trace_findings(figures: DeviceAnalysis, steady: Steady) -> list[str]:
    """The findings on one device."""
    found = []
    idle = figures.idle_ns / max(figures.span_ns, 1)
    if figures.gap_groups and idle >= IDLE_FROM and figures.gap_groups[0].share >= HALF:
        group = figures.gap_groups[0]
        found.append(f"{percent(group.share)} of the idle time lies in one place: {group_words(group)}")
    if steady.slice_ns is not None:
        gaps = f"{steady.time_slices} equal gaps of {duration(steady.slice_ns)} begin after the launch, with"
        found.append(f"{gaps} nothing running: another process uses the device in turn")
    spread = figures.signals.collective_spread
    if spread is not None and spread >= thresholds.WAITS_TIMES:
        longest = f"one collective takes up to {spread:.0f} times as long as its usual short call"
        found.append(f"{longest}: it waits for a peer")
    return found
