"""From inputs to the analysis: read each trace, work out its devices, compare ranks, judge.

One trace is held at a time; of each only the small things that ranks are compared by stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from autobrrr.errors import UsageError
from autobrrr.machine.kernel_text import number
from autobrrr.readable import readable
from autobrrr.records import Shares, StepStats
from autobrrr.trace.causes.idle_causes import HostTimeline
from autobrrr.trace.device.device_figures import device_figures
from autobrrr.trace.device.device_work import DeviceWork, device_work
from autobrrr.trace.device.rank_comparison import Collectives, Peer, blame, collectives_of, compare_ranks
from autobrrr.trace.device.steady_part import Steady, steady_part
from autobrrr.trace.reading.trace_columns import Trace, used
from autobrrr.trace.reading.trace_reader import read_trace
from autobrrr.trace.reading.trace_source import TraceFile
from autobrrr.trace.timeline.launches import LaunchCalls, find_calls
from autobrrr.trace.timeline.trace_steps import StepMark, described, find_steps, step_stats
from autobrrr.trace.trace_records import (
    Analysis,
    DeviceAnalysis,
    RankComparison,
    Straggler,
    TraceAdvice,
    TraceAnalysis,
)
from autobrrr.trace.verdict.host_limit import host_limit
from autobrrr.trace.verdict.trace_advice import advise, for_peers
from autobrrr.trace.verdict.trace_verdict import judge
from autobrrr.trace.verdict.trace_warnings import trace_findings, trace_warnings

_NO_DEVICE = "no GPU operation in the trace"
_SAID = (  # of a verdict, in the record of a device and of its trace
    *("limit", "limit_confidence", "limit_reason", "regime", "confidence", "reason"),
    *("decide_with", "shares", "evidence", "ledger"),
)
Watcher = Callable[[Trace, list[DeviceWork], TraceAnalysis], None]


class _Unjudged(Struct, frozen=True, kw_only=True):
    """One trace, worked out, before ranks are compared."""

    trace: TraceAnalysis
    steady: list[Steady]
    collectives: list[Collectives]
    advice: list[list[TraceAdvice]]


def analyse(
    sources: Sequence[TraceFile],
    watch: Watcher | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Analysis:
    """Analyse traces; several are taken as ranks of one job.

    Args:
        sources: The inputs.
        watch: Gets each trace with its devices before they are let go: exports take what they need.
        say: Gets a line for each file as it is read.

    Raises:
        UsageError: an input that was named is no trace, or none of a folder's files is one.
    """
    done: list[_Unjudged] = []
    skipped: list[str] = []
    for source in sources:
        say(f"reading {source.name}")
        try:
            done.append(_work_out(read_trace(source), watch))
        except UsageError as error:
            if source.chosen:
                raise
            skipped.append(readable(error.message))
    if not done:
        raise UsageError("none of the files is a trace", skipped[0] if skipped else "")
    comparison = compare_ranks(
        [
            Peer(trace=each.trace, device=device, collectives=collectives)
            for each in done
            for device, collectives in zip(each.trace.devices, each.collectives, strict=True)
        ]
    )
    return Analysis(traces=[_judged(each, comparison) for each in done], ranks=comparison, skipped=skipped)


def analyse_trace(trace: Trace) -> TraceAnalysis:
    """Analyse one trace that was read already: a profiler window of a live job."""
    return _judged(_work_out(trace, None), None)


def _work_out(trace: Trace, watch: Watcher | None) -> _Unjudged:
    calls = find_calls(trace)
    timeline = HostTimeline(trace)
    marks = find_steps(trace)
    codes = sorted(used(trace.gpu.device), key=lambda code: _ordered(trace.devices[code]))
    works = [device_work(trace, timeline, calls, code) for code in codes]
    devices = [device_figures(work) for work in works]
    origin = int(min((each.start.min() for each in (trace.gpu, trace.host) if len(each)), default=0))
    distributed = trace.metadata.distributed
    rank = distributed.rank if distributed is not None else None
    analysis = TraceAnalysis(
        file=readable(trace.file),
        rank=devices[0].rank if rank is None and len(devices) == 1 else rank,
        gpu=devices[0].name
        if devices
        else trace.metadata.devices[0].name
        if trace.metadata.devices
        else None,
        events=trace.events,
        json_bytes=trace.bytes_read,
        devices=devices,
        steps=described(marks, origin, [(each.label, each.gpu, each.gaps) for each in works]),
        step_ns=step_stats(marks) if marks else StepStats(count=0, mean=None, median=None, p99=None),
        limit_reason=_NO_DEVICE,
        regime="unknown",
        confidence="low",
        reason=_NO_DEVICE,
        decide_with=None,
        shares=Shares(),
        evidence=[],
        advice=[],
        warnings=trace_warnings(trace, calls, devices, marks),
    )
    found = _Unjudged(
        trace=analysis,
        steady=[steady_part(each, marks) for each in works],
        collectives=[collectives_of(each) for each in works],
        advice=[advise(work, figures) for work, figures in zip(works, devices, strict=True)],
    )
    if not works:
        found = msgspec.structs.replace(found, trace=_host_only(analysis, trace, timeline, calls, marks))
    if watch is not None:
        watch(trace, works, analysis)
    return found


def _host_only(
    analysis: TraceAnalysis, trace: Trace, timeline: HostTimeline, calls: LaunchCalls, marks: list[StepMark]
) -> TraceAnalysis:
    """The same trace, judged by its host alone."""
    if trace.accelerator is not None:
        why = f"{trace.accelerator} ran this job; analyze reads what NVIDIA and AMD devices record"
        return msgspec.structs.replace(analysis, limit_reason=why, reason=why)
    on_device = bool(trace.metadata.devices) or bool(calls.launching.any())
    found = host_limit(trace, timeline, marks, on_device=on_device)
    if found is None:
        decide = "profile with ProfilerActivity.CUDA" if on_device else None
        return msgspec.structs.replace(analysis, decide_with=decide)
    limit, confidence, why, advice = found
    return msgspec.structs.replace(
        analysis,
        limit=limit,
        limit_confidence=confidence,
        limit_reason=why,
        reason=f"{_NO_DEVICE}: the host's timeline is the only signal",
        advice=advice,
    )


def _judged(each: _Unjudged, comparison: RankComparison | None) -> TraceAnalysis:
    trace = each.trace
    if not trace.devices:
        return trace
    devices, advice = [], []
    for device, steady, own_advice in zip(trace.devices, each.steady, each.advice, strict=True):
        figures = msgspec.structs.replace(device, left_out_ns=steady.left_out_ns)
        own = _own(comparison, trace.file, figures)
        who = blame(comparison, own) if comparison is not None and own is not None else ""
        verdict = judge(figures, steady, own, who)
        for_limit = (
            own_advice if verdict.limit != "startup" else []
        )  # what is first used says nothing of later
        advice.append(for_peers(for_limit, own, who) if own is not None else for_limit)
        devices.append(msgspec.structs.replace(figures, **{name: getattr(verdict, name) for name in _SAID}))
    slowest = max(range(len(devices)), key=lambda index: devices[index].span_ns)
    chosen = devices[slowest]
    of_which = f"device {chosen.device}, the slowest: " if len(devices) > 1 else ""
    said = {name: getattr(chosen, name) for name in _SAID}
    said |= {name: f"{of_which}{said[name]}" for name in ("limit_reason", "reason")}
    return msgspec.structs.replace(
        trace,
        devices=devices,
        advice=advice[slowest],
        findings=trace_findings(devices[slowest], each.steady[slowest]),
        **said,
    )


def _own(comparison: RankComparison | None, file: str, figures: DeviceAnalysis) -> Straggler | None:
    if comparison is None or comparison.matched_collectives == 0:
        return None
    return next(
        (each for each in comparison.ranks if each.file == file and each.device == figures.device), None
    )


def _ordered(device: str) -> tuple[int, int, str]:
    known = number(device)
    return (1, 0, device) if known is None else (0, known, "")
