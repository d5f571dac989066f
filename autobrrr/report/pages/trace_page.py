"""The analysis of traces as a page: verdict and advice first, timelines to move in, then every table.

In: records, and drawn stretches for a browser. Out: a page of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from autobrrr.quantities import duration
from autobrrr.quantities import share as percent
from autobrrr.records import limit_words
from autobrrr.records.verdict_records import NAMES_NOBODY, limit_name
from autobrrr.report import page_model as pm
from autobrrr.report.pages.diagnosis_parts import evidence_table, parts
from autobrrr.trace.causes.host_causes import CAUSE_WORDS
from autobrrr.trace.kernels.kernel_classes import CONTRACTIONS
from autobrrr.trace.step_view import StepView
from autobrrr.trace.trace_records import (
    Analysis,
    DeviceAnalysis,
    KernelClass,
    RankComparison,
    Straggler,
    TraceAnalysis,
)

MOST_STEPS = 40
MOST_OF_IT = 0.75  # of all waiting: those who cause it are named
NO_SURENESS = ("mixed", "unknown")
WHOLE_AT = 0.95  # of a class's time: less is said
ENOUGH = 0.5  # of the contractions' time: shares of less would mislead
FLOPS = "; FLOPs against time, of what could be counted (* one operation an element: the least there can be)"
BOUND = "Each figure is a bound by itself: the speed if all of the time that it names were gone."


def trace_page(analysis: Analysis, views: Mapping[str, Sequence[StepView]]) -> pm.ReportPage:
    """The page.

    Args:
        analysis: What was found.
        views: Stretches to draw, by file.
    """
    traces = read_first(analysis)
    parts = [_trace(trace, views.get(trace.file, ()), at) for at, trace in enumerate(traces)]
    if len(traces) > 1:
        parts = [
            [_folded(trace, found, "closed" if at else "open")]
            for at, (trace, found) in enumerate(zip(traces, parts, strict=True))
        ]
    ranks = [] if analysis.ranks is None else [_ranks(analysis.ranks)]
    skipped = [pm.section("Passed over", pm.listed(analysis.skipped))] if analysis.skipped else []
    return pm.ReportPage(
        kind="analyze",
        title=traces[0].file if len(traces) == 1 else f"{len(traces)} traces",
        about=_about(traces[0]) if len(traces) == 1 else [],
        sections=[*ranks, *(each for found in parts for each in found), *skipped],
        data=analysis,
        file="analysis.json",
    )


def _about(trace: TraceAnalysis) -> list[str]:
    rank = [] if trace.rank is None else [f"rank {trace.rank}"]
    return [trace.gpu or "GPU unknown", *rank, f"{trace.events} events", f"{trace.json_bytes / 1e6:.1f} MB"]


def _folded(trace: TraceAnalysis, sections: Sequence[pm.Section], fold: str) -> pm.Section:
    head = f"{trace.file}: {limit_words(trace.limit, trace.limit_confidence)}, regime {trace.regime}"
    return pm.section(head, pm.Line(text=" · ".join(_about(trace)), tone="muted"), *sections, fold=fold)


def _trace(trace: TraceAnalysis, views: Sequence[StepView], index: int) -> list[pm.Section]:
    names = {view.device: f"view-{index}-{number}" for number, view in enumerate(views)}
    several = len(trace.devices) > 1
    return pm.filled(
        _verdict(trace),
        pm.section("Advice (up to how many times as fast)", *_advice(trace)),
        pm.section("What stands out", pm.listed(trace.findings) if trace.findings else None),
        *(_timeline(view, names[view.device]) for view in views),
        *(each for device in trace.devices for each in _device(device, several, names.get(device.device))),
        pm.section("Steps", _steps(trace)),
        pm.section("Signals", evidence_table(trace.evidence), on="page"),
        pm.section("Notes on this trace", pm.listed(trace.warnings) if trace.warnings else None),
    )


def _verdict(trace: TraceAnalysis) -> pm.Section:
    alone = trace.devices[0] if len(trace.devices) == 1 else None
    sure = "" if trace.limit in NAMES_NOBODY else f"{trace.limit_confidence} confidence"
    regime = "" if trace.regime in NO_SURENESS else f"{trace.confidence} confidence"
    return pm.section(
        "Verdict",
        pm.Line(text=limit_name(trace.limit), note=sure, tone="head"),
        None if alone is None else pm.Line(text=_idle_words(alone), tone="strong"),
        pm.Line(text=trace.limit_reason),
        pm.Line(text=f"regime: {trace.regime}", note=regime),
        pm.Line(text=trace.reason),
        pm.Line(text=f"What would decide: {trace.decide_with}", tone="muted") if trace.decide_with else None,
        _shares(trace) if trace.devices else None,
    )


def _shares(found: TraceAnalysis | DeviceAnalysis) -> pm.Bar:
    return pm.Bar(title="Where the time goes", parts=parts(found.shares, 0.001))


def _advice(trace: TraceAnalysis) -> list[pm.Line | pm.LineGroup]:
    if not trace.advice:
        return []
    said = [
        pm.Line(
            name="" if each.gain is None else f"{each.gain:.2f}x",
            text=each.text + (f" Where: {each.where}." if each.where else ""),
        )
        for each in trace.advice
    ]
    return [pm.LineGroup(lines=said, shape="advice"), pm.Line(text=BOUND, tone="muted")]


def _timeline(view: StepView, name: str) -> pm.Section:
    shown = view.stretches[0]
    says = (
        f"Timeline of device {view.device}: {len(view.operations)} operations on {len(view.streams)} "
        f"streams; shown first: {duration(shown.end - shown.start)} of {duration(view.span)}. "
        "The tables below say what the idle time goes to."
    )
    data = msgspec.json.encode(view).decode()
    title = f"Timeline: {view.title}, device {view.device}"
    return pm.section(title, pm.Drawing(shape="timeline", name=name, says=says, data=data))


def idle_causes(device: DeviceAnalysis) -> list[tuple[int, str, str]]:
    """Idle nanoseconds, colour and words, the widest first; by the corrected clock where there is one."""
    clock = device.idle_clock_corrected
    idle = clock.idle if clock else device.idle
    late = clock.host_late_by_cause_ns if clock else device.host_late_by_cause_ns
    rows = [(ns, str(cause), f"host late: {CAUSE_WORDS[cause]}") for cause, ns in late.items()]
    rows += [
        (idle.in_launch_ns, "in_launch", "in the launch call"),
        (idle.after_launch_ns, "after_launch", "after the launch"),
        (idle.unmatched_ns, "unmatched", "no launch in the file"),
    ]
    return [row for row in sorted(rows, reverse=True) if row[0] > 0]


def _idle_words(device: DeviceAnalysis) -> str:
    """How idle the device is, and mostly why."""
    span, causes = max(device.span_ns, 1), idle_causes(device)
    said = f"In {duration(device.span_ns)} the device is busy {percent(device.busy_ns / span)} and idle "
    said += f"{percent(device.idle_ns / span)} of the time"
    if causes and device.idle_ns > 0:
        said += f"; {percent(causes[0][0] / device.idle_ns)} of the idle time goes to “{causes[0][2]}”"
    return f"{said}."


def _device(device: DeviceAnalysis, several: bool, view: str | None) -> list[pm.Section]:
    limit = limit_words(device.limit, device.limit_confidence)
    judged = f"{limit}: {device.limit_reason}; regime {device.regime}: {device.reason}. {_idle_words(device)}"
    exposed, span = device.exposed_communication_ns, max(device.span_ns, 1)
    communication = f"Communication takes {duration(device.communication_ns)}. "
    communication += f"{duration(exposed)} of it is exposed ({percent(exposed / span)} of the span)."
    waited = device.host_late_after_synchronisation_ns
    begun = f"{duration(waited)} of host late began in a wait for the device."
    return [
        *([pm.section(f"Device {device.device}", pm.Line(text=judged), _shares(device))] if several else []),
        *pm.filled(
            pm.section(
                "",
                _causes(device),
                pm.Line(text=begun, tone="muted") if waited > 0.01 * device.idle_ns else None,
                beside=True,
            ),
            pm.section("", kernels_table(device), beside=True),
            pm.section("", pm.Line(text=communication) if device.communication_ns else None),
            pm.section("", _stalls(device, view)),
            pm.section("", _waits(device)),
            pm.section("", _python(device)),
            pm.section("", _alike(device)),
            pm.section("", _top_kernels(device), on="page"),
        ),
    ]


def _causes(device: DeviceAnalysis) -> pm.PageTable:
    total = max(device.idle_ns, 1)
    moved = " (with the device's clock moved by a constant)" if device.idle_clock_corrected else ""
    return pm.table(
        f"Why the device was idle{moved}: {duration(device.idle_ns)} in {device.gaps} gaps",
        ("cause", "time:ns", "of idle:share", "-"),
        [
            (pm.Cell(text=said, colour=name), ns, ns / total, pm.bar(ns / total, name))
            for ns, name, said in idle_causes(device)
        ],
    )


def kernels_table(device: DeviceAnalysis) -> pm.PageTable:
    """Classes by time, with the FLOPs where those of most contractions are known."""
    kinds = device.kernels
    rates = {
        name: each.flops / each.counted_ns for name, each in kinds.items() if each.flops and each.counted_ns
    }
    contractions = [name for name in CONTRACTIONS if name in kinds]
    counted_ns = sum(kinds[name].counted_ns or 0 for name in contractions if name in rates)
    enough = counted_ns > 0 and counted_ns >= ENOUGH * sum(kinds[name].ns for name in contractions)
    quickest = max((rates[name] for name in contractions if name in rates), default=0.0)
    whole = sum(kinds[name].flops or 0 for name in rates)
    rows = []
    for name, each in kinds.items():
        rate = rates.get(name)
        made, slower = ((each.flops or 0) / whole, quickest / rate) if rate and enough else (None, None)
        note = ", ".join([*_of_class(name, each), *([_counted(name, each)] if enough else [])])
        rows.append(
            (
                *(pm.Cell(text=name, colour=name), each.ns, each.share, each.count, pm.bar(each.share, name)),
                pm.figure("" if made is None else _fine_share(made), made),
                pm.figure("" if rate is None else f"{rate / 1e3:.3g}", rate),
                pm.figure("" if slower is None else f"{slower:.3g}x", slower),
                pm.Cell(text=note.strip(", "), tone="muted"),
            )
        )
    title = f"Kernels by class: {device.kernel_count} from {device.launches} launches"
    heads = ("class", "time:ns", "share:share", "~count:count", "~-", "#FLOPs", "#TFLOP/s", "#slower", "note")
    return pm.table(title + FLOPS * enough, heads, rows)


def _of_class(name: str, found: KernelClass) -> list[str]:
    """What keeps kernels of this class from being fast."""
    said = []
    if found.plain_ns and found.ns and found.plain_ns > 0.05 * found.ns:
        said.append(f"{percent(found.plain_ns / found.ns)} without tensor cores")
    if found.underfilled_ns and found.underfilled_ns > 0.1 * found.ns and name != "communication":
        said.append(f"{percent(found.underfilled_ns / found.ns)} underfilled")
    return said


def _counted(name: str, found: KernelClass) -> str:
    """What keeps a class's FLOPs from being the whole truth."""
    if not found.flops or not found.counted_ns:
        return "work not recorded"
    counted = found.counted_ns / found.ns
    words = "" if counted >= WHOLE_AT else f"{percent(counted)} of it counted "
    return words + "*" * (name not in CONTRACTIONS)


def _waits(device: DeviceAnalysis) -> pm.PageTable:
    rows = [
        (each.call, each.python or each.operator or "", each.count, each.blocked_ns, each.idle_ns)
        for each in device.synchronisations
    ]
    heads = ("call", "where", "count:count", "blocked:ns", "idle after:ns")
    return pm.table("Waits of the host for the device", heads, rows, most=5)


def _python(device: DeviceAnalysis) -> pm.PageTable:
    rows = [(each.count, each.idle_ns, each.python) for each in device.host_code]
    title = "Python that holds the host while the device idles"
    return pm.table(title, ("count:count", "idle:ns", "where"), rows)


def _alike(device: DeviceAnalysis) -> pm.PageTable:
    groups = device.gap_groups if device.gap_groups and device.gap_groups[0].count > 1 else []
    rows = []
    for each in groups:
        where = ", ".join(filter(None, (each.python, each.annotation)))
        rows.append((each.share, each.count, each.median_ns, _kernel(each.ended_by), where))
    heads = ("of idle:share", "count:count", "median:ns", "before", "in")
    return pm.table("Gaps that are alike, by what ends them", heads, rows, most=5)


def _stalls(device: DeviceAnalysis, view: str | None) -> pm.PageTable:
    rows = []
    for stall in device.stalls[:10]:
        part, jump = stall.part.replace("_", " "), (view or "", stall.start_ns, stall.start_ns + stall.ns)
        late = f": {CAUSE_WORDS.get(stall.cause, stall.cause)}" if stall.cause and part == "host late" else ""
        length = pm.Cell(text=duration(stall.ns), sort=stall.ns, jump=jump if view else None)
        until, by = _kernel(stall.ended_by), stall.python or stall.operator or ""
        rows.append((length, stall.start_ns, f"{part}{late}", until, by))
    title = "Longest gaps; each leads into the timeline" if view else "Longest gaps"
    return pm.table(title, ("#length", "at:ns", "why", "until", "launched by"), rows, most=5)


def _top_kernels(device: DeviceAnalysis) -> pm.PageTable:
    rows = []
    for each in device.top_kernels:
        named = pm.Cell(text=plain(each.name)[:240], title=each.name, colour=each.class_)
        rows.append((named, each.operator or "", each.ns, each.count, each.median_ns))
    heads = ("kernel", "operator", "time:ns", "count:count", "median:ns")
    return pm.table("Longest kernels", heads, rows)


def _steps(trace: TraceAnalysis) -> pm.PageTable:
    longest = max([1, *(step.duration_ns for step in trace.steps)])
    stats, early = trace.step_ns, sum(step.early for step in trace.steps)
    counted = f"{stats.count} step{'' if stats.count == 1 else 's'}"
    left_out = f" ({early} early ones left out)" if early else ""
    rows = []
    for step in trace.steps[:MOST_STEPS]:
        busy = step.devices[0].busy_ns / max(step.duration_ns, 1) if step.devices else None
        spent = pm.bar(step.duration_ns / longest, "other" if step.early else "memory")
        named = f"{step.name}{' (early)' if step.early else ''}"
        rows.append((named, step.duration_ns, spent, busy))
    title = f"{counted}, median {duration(stats.median)}, p99 {duration(stats.p99)}{left_out}"
    return pm.table(title, ("step", "duration:ns", "-", "device busy:share"), rows, most=12)


def _ranks(ranks: RankComparison) -> pm.Section:
    longest, rows = max([1, *(each.busy_ns for each in ranks.ranks)]), []
    for each in ranks.ranks:
        work_ns = None if each.waiting_ns is None else max(each.busy_ns - each.waiting_ns, 0)
        waits = (each.waiting_ns, pm.bar((each.waiting_ns or 0) / longest, "communication"))
        works = (work_ns, pm.bar((work_ns or 0) / longest, "compute"))
        times = (each.step_median_ns, each.busy_ns, each.communication_ns)
        rows.append((each.rank, str(each.device), *times, *waits, *works, each.late_ns, each.last_in))
    said = rank_sentence(ranks)
    heads = "rank:count,#device,step:ns,busy in all:ns,collectives:ns,waits for peers:ns,~-,works:ns,~-"
    heads += ",peers wait for it:ns,came last:count"
    matched = f"{ranks.matched_collectives} collectives matched: {ranks.note}"
    title = "Every rank; bars compare waiting for peers with work"
    return pm.section(
        "Ranks",
        pm.Line(text=said, tone="head") if said else None,
        pm.Line(text=matched, tone="muted"),
        pm.table(title, heads.split(","), rows),
    )


def late_ranks(ranks: RankComparison) -> list[Straggler]:
    """The fewest ranks that cause three quarters of all waiting, if they are half of all at most."""
    total_ns = sum(each.late_ns or 0 for each in ranks.ranks)
    named: list[Straggler] = []
    for each in sorted(ranks.ranks, key=lambda one: -(one.late_ns or 0)):
        if sum(one.late_ns or 0 for one in named) >= MOST_OF_IT * total_ns:
            break
        named.append(each)
    return named if len(named) <= len(ranks.ranks) // 2 else []


def read_first(analysis: Analysis) -> list[TraceAnalysis]:
    """The traces, those of ranks that hold up the others first."""
    late = [] if analysis.ranks is None else [each.file for each in late_ranks(analysis.ranks)]
    return sorted(
        analysis.traces, key=lambda trace: late.index(trace.file) if trace.file in late else len(late)
    )


def rank_sentence(ranks: RankComparison) -> str | None:
    """Who came last, and how long the others waited for it; None where that was not measured."""
    total_ns = sum(each.late_ns or 0 for each in ranks.ranks)
    if total_ns == 0:
        return None
    named = late_ranks(ranks)
    if not named:
        return "No rank holds up the others: all of them come last about as often."
    caused_ns = sum(each.late_ns or 0 for each in named)
    names = [str(each.rank) if each.rank is not None else each.file for each in named]
    who = (
        f"Rank {names[0]} holds" if len(names) == 1 else f"Ranks {', '.join(names[:-1])} and {names[-1]} hold"
    )
    came = sum(each.last_in or 0 for each in named)
    return (
        f"{who} up the others: {came} of {ranks.matched_collectives} collectives wait for "
        f"{'it' if len(names) == 1 else 'them'}, {percent(caused_ns / total_ns)} of all waiting "
        f"({duration(caused_ns)} over all ranks)."
    )


def _kernel(name: str) -> pm.Cell:
    return pm.Cell(text=plain(name)[:120], title=name)


def plain(name: str) -> str:
    """A kernel's name without return type and namespaces that say nothing."""
    for noise in ("void ", "at::native::", "(anonymous namespace)::"):
        name = name.replace(noise, "")
    return name


def _fine_share(share: float) -> str:
    """A share in percent; what is nearly nothing or nearly all does not pass for it."""
    if 0 < share < 0.0001:
        return "<0.01 %"
    return ">99.99 %" if 0.9999 < share < 1 else percent(share, 2)
