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
from autobrrr.trace.causes.idle_causes import HostTimeline
from autobrrr.trace.device.device_figures import device_figures
from autobrrr.trace.device.device_work import DeviceWork, device_work
from autobrrr.trace.device.rank_comparison import Collectives, blame, collectives_of, compare_ranks
from autobrrr.trace.device.steady_part import Steady, steady_part
from autobrrr.trace.reading.trace_columns import Trace, used
from autobrrr.trace.reading.trace_reader import read_trace
from autobrrr.trace.reading.trace_source import TraceFile
from autobrrr.trace.timeline.launches import find_calls
from autobrrr.trace.timeline.trace_steps import described, find_steps, step_stats
from autobrrr.trace.trace_records import (
    Analysis,
    DeviceAnalysis,
    RankComparison,
    Straggler,
    TraceAdvice,
    TraceAnalysis,
    TraceVerdict,
)
from autobrrr.trace.verdict.trace_advice import advise, for_peers
from autobrrr.trace.verdict.trace_verdict import host_verdict, judge
from autobrrr.trace.verdict.trace_warnings import trace_findings, trace_warnings

Watcher = Callable[[Trace, list[DeviceWork], TraceAnalysis], None]


class _Device(Struct, frozen=True, kw_only=True):
    """One device, worked out, before ranks are compared."""

    figures: DeviceAnalysis
    steady: Steady
    collectives: Collectives
    advice: list[TraceAdvice]


Worked = tuple[TraceAnalysis, list[_Device]]  # one trace, before ranks are compared


def analyse(
    sources: Sequence[TraceFile], watch: Watcher | None = None, say: Callable[[str], None] = lambda line: None
) -> Analysis:
    """Analyse traces; several are taken as ranks of one job.

    Args:
        sources: The inputs.
        watch: Gets each trace with its devices before they are let go: exports take what they need.
        say: Gets a line for each file as it is read.

    Raises:
        UsageError: an input that was named is no trace, or none of a folder's files is one.
    """
    done: list[Worked] = []
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
        [(trace, device.figures, device.collectives) for trace, devices in done for device in devices]
    )
    return Analysis(traces=[_judged(*each, comparison) for each in done], ranks=comparison, skipped=skipped)


def analyse_trace(trace: Trace) -> TraceAnalysis:
    """Analyse one trace that was read already: a profiler window of a live job."""
    return _judged(*_work_out(trace, None), None)


def _work_out(trace: Trace, watch: Watcher | None) -> Worked:
    calls = find_calls(trace)
    timeline = HostTimeline(trace, calls)
    marks = find_steps(trace)
    codes = sorted(used(trace.gpu.device), key=lambda code: _ordered(trace.devices[code]))
    works = [device_work(trace, timeline, calls, code) for code in codes]
    devices = []
    for work in works:
        figures, steady = device_figures(work), steady_part(work, marks)
        figures = msgspec.structs.replace(figures, left_out_ns=steady.left_out_ns)
        own = collectives_of(work)
        devices.append(_Device(figures=figures, steady=steady, collectives=own, advice=advise(work, figures)))
    origin = int(min((each.start.min() for each in (trace.gpu, trace.host) if len(each)), default=0))
    distributed = trace.metadata.distributed
    rank = distributed.rank if distributed is not None else None
    gpus = [each.figures.name for each in devices] or [each.name for each in trace.metadata.devices]
    verdict, advice = host_verdict(trace, timeline, calls, marks) if not works else (TraceVerdict(), [])
    analysis = TraceAnalysis(
        file=readable(trace.file),
        rank=devices[0].figures.rank if rank is None and len(devices) == 1 else rank,
        gpu=gpus[0] if gpus else None,
        events=trace.events,
        json_bytes=trace.bytes_read,
        devices=[each.figures for each in devices],
        steps=described(marks, origin, [(each.label, each.gpu, each.gaps) for each in works]),
        step_ns=step_stats(marks),
        warnings=trace_warnings(trace, calls, [each.figures for each in devices], marks),
        advice=advice,
        **msgspec.structs.asdict(verdict),
    )
    if watch is not None:
        watch(trace, works, analysis)
    return analysis, devices


def _judged(trace: TraceAnalysis, each: list[_Device], comparison: RankComparison | None) -> TraceAnalysis:
    if not each:
        return trace
    devices, verdicts, advice = [], [], []
    for device in each:
        own = _own(comparison, trace.file, device.figures)
        who = blame(comparison, own) if comparison is not None and own is not None else ""
        verdict = judge(device.figures, device.steady, own, who)
        # What is first used says nothing of later.
        for_limit = device.advice if verdict.limit != "startup" else []
        advice.append(for_peers(for_limit, own, who) if own is not None else for_limit)
        verdicts.append(msgspec.structs.asdict(verdict))
        devices.append(msgspec.structs.replace(device.figures, **verdicts[-1]))
    slowest = max(range(len(devices)), key=lambda index: devices[index].span_ns)
    chosen = devices[slowest]
    of_which = f"device {chosen.device}, the slowest: " if len(devices) > 1 else ""
    said = {**verdicts[slowest], "limit_reason": f"{of_which}{chosen.limit_reason}"}
    return msgspec.structs.replace(
        trace,
        devices=devices,
        advice=advice[slowest],
        findings=trace_findings(chosen, each[slowest].steady),
        **{**said, "reason": f"{of_which}{chosen.reason}"},
    )


def _own(comparison: RankComparison | None, file: str, figures: DeviceAnalysis) -> Straggler | None:
    if comparison is None or comparison.matched_collectives == 0:
        return None
    mine = (each for each in comparison.ranks if each.file == file and each.device == figures.device)
    return next(mine, None)


def _ordered(device: str) -> tuple[bool, int, str]:
    """Numbers first."""
    known = number(device)
    return known is None, known or 0, device
