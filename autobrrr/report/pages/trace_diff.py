"""Two traces compared: how idle the devices are and why, which kernels take how long."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import median

import msgspec

from autobrrr.errors import UsageError
from autobrrr.report.pages.side_by_side import (
    NO_AB_TEST,
    ComparedAnalysis,
    ComparedFigure,
    ComparedWord,
    SideBySide,
    judged,
)
from autobrrr.report.pages.trace_page import idle_causes, plain
from autobrrr.trace.trace_records import Analysis, DeviceAnalysis, TraceAnalysis

MOST_KERNELS = 12
NAME_LETTERS = 60


def compare_traces(before: Analysis, after: Analysis) -> ComparedAnalysis:
    """Both, and how they compare.

    Raises:
        UsageError: one of them is not one trace of one device.
    """
    one, other = _only(before), _only(after)
    comparison = SideBySide(
        kind="traces",
        before=one.file,
        after=other.file,
        words=list(_words(one, other)),
        figures=list(_figures(one, other)),
        caveats=[*_caveats(one, other), NO_AB_TEST],
    )
    return ComparedAnalysis(traces=[one, other], comparison=comparison)


def _only(analysis: Analysis) -> TraceAnalysis:
    if len(analysis.traces) != 1 or len(analysis.traces[0].devices) != 1:
        raise UsageError(
            "--diff compares one trace of one device with another", "name the trace of one rank of each run"
        )
    return analysis.traces[0]


def _words(before: TraceAnalysis, after: TraceAnalysis) -> Iterator[ComparedWord]:
    yield ComparedWord(name="GPU", before=before.gpu or "unknown", after=after.gpu or "unknown")
    yield from judged(before, after)


def _figures(before: TraceAnalysis, after: TraceAnalysis) -> Iterator[ComparedFigure]:
    """Steps in time; what is known of the whole trace alone as shares: traces differ in length."""
    ours, theirs = before.devices[0], after.devices[0]
    whole = (step_medians(before), step_medians(after))
    for name, less in (("step", True), ("busy", None), ("idle", True)):
        times = (whole[0].get(name), whole[1].get(name))
        yield ComparedFigure(
            group="step",
            name="median" if name == "step" else f"of it {name}",
            unit="ns",
            before=times[0],
            after=times[1],
            less_is_better=less,
        )
    shares = partial(_share, (max(ours.span_ns, 1), max(theirs.span_ns, 1)))
    for name, one, other, less in (
        ("busy", ours.busy_ns, theirs.busy_ns, None),
        ("idle", ours.idle_ns, theirs.idle_ns, True),
        ("communication, exposed", ours.exposed_communication_ns, theirs.exposed_communication_ns, True),
        ("copies, exposed", ours.exposed_memcpy_ns, theirs.exposed_memcpy_ns, True),
    ):
        yield shares("device, share of its time", name, (one, other), less)
    idle = [{said: ns for ns, _, said in idle_causes(each)} for each in (ours, theirs)]
    for name in dict.fromkeys([*idle[0], *idle[1]]):
        pair = (idle[0].get(name, 0), idle[1].get(name, 0))
        yield shares("idle by cause, share of all time", name, pair, None)
    for name in dict.fromkeys([*ours.kernels, *theirs.kernels]):
        spent = [each.kernels[name].ns if name in each.kernels else 0 for each in (ours, theirs)]
        yield shares("kernels by class, share of all time", name, (spent[0], spent[1]), None)
    for name, first, second in (
        ("kernels", ours.kernel_count, theirs.kernel_count),
        ("launches", ours.launches, theirs.launches),
        ("steps measured", before.step_ns.count, after.step_ns.count),
    ):
        yield ComparedFigure(group="in the whole trace", name=name, unit="count", before=first, after=second)
    yield from _kernels(ours, theirs)


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


def _share(
    spans_ns: tuple[int, int], group: str, name: str, times: tuple[int, int], less: bool | None
) -> ComparedFigure:
    return ComparedFigure(
        group=group,
        name=name,
        unit="share",
        before=times[0] / spans_ns[0],
        after=times[1] / spans_ns[1],
        less_is_better=less,
    )


def _kernels(before: DeviceAnalysis, after: DeviceAnalysis) -> Iterator[ComparedFigure]:
    """Those that are among the longest of both: median time of one."""
    theirs = {kernel.name: kernel for kernel in after.top_kernels}
    both = [kernel for kernel in before.top_kernels if kernel.name in theirs]
    for kernel in both[:MOST_KERNELS]:
        yield ComparedFigure(
            group="one kernel, median",
            name=plain(kernel.name)[:NAME_LETTERS],
            unit="ns",
            before=kernel.median_ns,
            after=theirs[kernel.name].median_ns,
            less_is_better=True,
        )


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
