"""Two traces compared: how idle the devices are and why, which kernels take how long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autobrrr.errors import UsageError
from autobrrr.report.side_by_side import (
    NO_AB_TEST,
    ComparedAnalysis,
    ComparedFigure,
    ComparedWord,
    SideBySide,
    judged,
)
from autobrrr.report.text.trace_text import CAUSE_WORDS, plain
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
    """Shares are of the device's span: so traces of different length compare."""
    yield ComparedFigure(
        group="step",
        name="median",
        unit="ns",
        before=before.step_ns.median,
        after=after.step_ns.median,
        less_is_better=True,
    )
    ours, theirs = before.devices[0], after.devices[0]
    yield ComparedFigure(
        group="step", name="device's span", unit="ns", before=ours.span_ns, after=theirs.span_ns
    )
    for name, pair, less in (
        ("busy", (ours.busy_ns, theirs.busy_ns), None),
        ("idle", (ours.idle_ns, theirs.idle_ns), True),
        ("communication, exposed", (ours.exposed_communication_ns, theirs.exposed_communication_ns), True),
        ("copies, exposed", (ours.exposed_memcpy_ns, theirs.exposed_memcpy_ns), True),
    ):
        yield _share("share of the span", name, pair, (ours, theirs), less)
    idle = (_idle(ours), _idle(theirs))
    for name in dict.fromkeys([*idle[0], *idle[1]]):
        pair = (idle[0].get(name, 0), idle[1].get(name, 0))
        if any(pair):
            yield _share("idle, share of the span", name, pair, (ours, theirs), True)
    for name in dict.fromkeys([*ours.kernels, *theirs.kernels]):
        times = tuple(each.kernels[name].ns if name in each.kernels else 0 for each in (ours, theirs))
        yield _share("kernels, share of the span", name, (times[0], times[1]), (ours, theirs), None)
    counts = (
        ("kernels", ours.kernel_count, theirs.kernel_count),
        ("launches", ours.launches, theirs.launches),
    )
    steps = before.step_ns.count, after.step_ns.count
    for name, one, other in counts:
        yield ComparedFigure(group="in the whole trace", name=name, unit="count", before=one, after=other)
    yield ComparedFigure(
        group="in the whole trace", name="steps measured", unit="count", before=steps[0], after=steps[1]
    )
    yield from _kernels(ours, theirs)


def _share(
    group: str,
    name: str,
    pair: tuple[int, int],
    devices: tuple[DeviceAnalysis, DeviceAnalysis],
    less_is_better: bool | None,
) -> ComparedFigure:
    shares = [ns / max(device.span_ns, 1) for ns, device in zip(pair, devices, strict=True)]
    return ComparedFigure(
        group=group,
        name=name,
        unit="share",
        before=shares[0],
        after=shares[1],
        less_is_better=less_is_better,
    )


def _idle(device: DeviceAnalysis) -> Mapping[str, int]:
    """Idle time by cause, in words; with the clock's correction where there is one."""
    clock = device.idle_clock_corrected
    parts = clock.idle if clock else device.idle
    late = clock.host_late_by_cause_ns if clock else device.host_late_by_cause_ns
    return {
        **{f"host late: {CAUSE_WORDS[cause]}": ns for cause, ns in late.items()},
        "in the launch call": parts.in_launch_ns,
        "after the launch": parts.after_launch_ns,
        "no launch in the file": parts.unmatched_ns,
    }


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
        yield f"The ranks differ: {before.rank}, then {after.rank}."
    for trace in (before, after):
        if trace.step_ns.count < 2:
            counted = "no step" if trace.step_ns.count == 0 else "1 step"
            yield f"{trace.file} shows {counted}: its step time says little."
