"""The analysis of traces as one page: headline and advice first, timelines to move in, then every table.

Comes in as records and drawn stretches, goes out as HTML. The timeline is drawn by the page's own
script from data that stands in it; everything else is plain tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from markupsafe import Markup

from autobrrr.quantities import duration
from autobrrr.quantities import share as percent
from autobrrr.records import Evidence, limit_words
from autobrrr.records.limit_words import NAMES_NOBODY, limit_name
from autobrrr.report.html.page_tables import Cell, PageTable, bar, figure, swatch, words
from autobrrr.report.html.page_template import inline_json, render
from autobrrr.report.rank_sentence import rank_sentence, read_first
from autobrrr.report.text.trace_text import plain
from autobrrr.report.trace_flops import FOOTNOTE, fine_share, flops_rows, note
from autobrrr.trace.causes.host_causes import CAUSE_WORDS
from autobrrr.trace.step_view import StepView
from autobrrr.trace.trace_records import (
    Analysis,
    DeviceAnalysis,
    RankComparison,
    Stall,
    TraceAnalysis,
)

MOST_STEPS = 40
SHARE_OF = "share of "  # how the unit of a share begins
_PARTS = {
    "in_launch": "in the launch call",
    "after_launch": "after the launch",
    "unmatched": "no launch in the file",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnTimeline:
    """One timeline: its name in the page, what it shows, its data."""

    name: str
    title: str
    says: str
    data: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePart:
    """What the page says of one trace."""

    trace: TraceAnalysis
    about: Sequence[str]
    head: str
    sure: str
    headline: str | None
    shares: Sequence[tuple[str, float]]
    timelines: Sequence[DrawnTimeline]
    devices: Sequence[DevicePart]
    steps: PageTable | None
    signals: PageTable | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePart:
    """The tables of one device; `head` where there are several."""

    head: str | None
    pairs: Sequence[PageTable]  # narrow ones, side by side
    tables: Sequence[PageTable]


def page(analysis: Analysis, views: Mapping[str, Sequence[StepView]]) -> str:
    """The page.

    Args:
        analysis: What was found.
        views: Stretches to draw, by file.
    """
    traces = read_first(analysis)
    return render(
        "trace",
        data=analysis,
        scripts=("trace_timeline.js",),
        data_name="analysis.json",
        kind="analyze",
        title=traces[0].file if len(traces) == 1 else f"{len(traces)} traces",
        about=_about(traces[0]) if len(traces) == 1 else [],
        ranks=None if analysis.ranks is None else _ranks(analysis.ranks),
        ranks_note=None if analysis.ranks is None else analysis.ranks.note,
        ranks_say=None if analysis.ranks is None else rank_sentence(analysis.ranks),
        parts_of=[_part(trace, views.get(trace.file, ()), i) for i, trace in enumerate(traces)],
        skipped=analysis.skipped,
    )


def _about(trace: TraceAnalysis) -> list[str]:
    rank = [] if trace.rank is None else [f"rank {trace.rank}"]
    return [trace.gpu or "GPU unknown", *rank, f"{trace.events} events", f"{trace.json_bytes / 1e6:.1f} MB"]


def _part(trace: TraceAnalysis, views: Sequence[StepView], index: int) -> TracePart:
    names = {view.device: f"view-{index}-{number}" for number, view in enumerate(views)}
    shares = {name: getattr(trace.shares, name) or 0.0 for name in trace.shares.__struct_fields__}
    ranked = sorted(((name, part) for name, part in shares.items() if part >= 0.001), key=lambda one: -one[1])
    several = len(trace.devices) > 1
    return TracePart(
        trace=trace,
        about=_about(trace),
        head=limit_name(trace.limit),
        sure="" if trace.limit in NAMES_NOBODY else f"{trace.limit_confidence} confidence",
        headline=_idle_words(trace.devices[0]) if len(trace.devices) == 1 else None,
        shares=ranked if trace.devices else [],
        timelines=[_timeline(view, names[view.device]) for view in views],
        devices=[_device(device, several, names.get(device.device)) for device in trace.devices],
        steps=_steps(trace) if trace.steps else None,
        signals=_signals(trace) if trace.evidence else None,
    )


def _timeline(view: StepView, name: str) -> DrawnTimeline:
    shown = view.stretches[0]
    return DrawnTimeline(
        name=name,
        title=f"Timeline: {view.title}, device {view.device}",
        says=(
            f"Timeline of device {view.device}: {len(view.operations)} operations on {len(view.streams)} "
            f"streams; shown first: {duration(shown.end - shown.start)} of {duration(view.span)}. "
            "The tables below say what the idle time goes to."
        ),
        data=inline_json(msgspec.json.encode(view).decode()),
    )


def _idle_causes(device: DeviceAnalysis) -> list[tuple[int, str, str]]:
    """Idle nanoseconds, colour and words, the widest first."""
    clock = device.idle_clock_corrected
    idle = clock.idle if clock else device.idle
    late = clock.host_late_by_cause_ns if clock else device.host_late_by_cause_ns
    rows = [(ns, cause, f"host late: {CAUSE_WORDS[cause]}") for cause, ns in late.items()]
    rows += [
        (ns, part, _PARTS[part])
        for ns, part in (
            (idle.in_launch_ns, "in_launch"),
            (idle.after_launch_ns, "after_launch"),
            (idle.unmatched_ns, "unmatched"),
        )
    ]
    return [row for row in sorted(rows, reverse=True) if row[0] > 0]


def _idle_words(device: DeviceAnalysis) -> str:
    """How idle the device is, and mostly why."""
    span, causes = max(device.span_ns, 1), _idle_causes(device)
    said = f"In {duration(device.span_ns)} the device is busy {percent(device.busy_ns / span)} and idle "
    said += f"{percent(device.idle_ns / span)} of the time"
    if causes and device.idle_ns > 0:
        said += f"; {percent(causes[0][0] / device.idle_ns)} of the idle time goes to “{causes[0][2]}”"
    return f"{said}."


def _device(device: DeviceAnalysis, several: bool, view: str | None) -> DevicePart:
    head = None
    if several:
        limit = limit_words(device.limit, device.limit_confidence)
        judged = f"{limit}: {device.limit_reason}; regime {device.regime}: {device.reason}"
        head = f"Device {device.device}: {judged}. {_idle_words(device)}"
    pairs = [_causes(device), _kernels(device)]
    tables = [_stalls(device, view), _flops(device), _waits(device), _top_kernels(device)]
    return DevicePart(
        head=head,
        pairs=[table for table in pairs if table.rows],
        tables=[table for table in tables if table.rows],
    )


def _causes(device: DeviceAnalysis) -> PageTable:
    total = max(device.idle_ns, 1)
    moved = " (with the device's clock moved by a constant)" if device.idle_clock_corrected else ""
    return PageTable(
        caption=f"Why the device was idle{moved}",
        heads=("cause", "#time", "#of idle", "-"),
        rows=[
            [
                swatch(said, name),
                figure(duration(ns), ns),
                figure(percent(ns / total), ns),
                bar(ns / total, name),
            ]
            for ns, name, said in _idle_causes(device)
        ],
    )


def _kernels(device: DeviceAnalysis) -> PageTable:
    return PageTable(
        caption="Kernels by class",
        heads=("class", "#time", "#share", "#count", "#TFLOP/s", "-"),
        rows=[
            [
                swatch(name, name),
                figure(duration(kernels.ns), kernels.ns),
                figure(percent(kernels.share), kernels.share),
                figure(str(kernels.count), kernels.count),
                _rate(kernels.flops, kernels.counted_ns),
                bar(kernels.share, name),
            ]
            for name, kernels in device.kernels.items()
        ],
    )


def _rate(flops: int | None, ns: int | None) -> Cell:
    if not flops or not ns:
        return Cell()
    return figure(f"{flops / ns / 1e3:.3g}", flops / ns)


def _flops(device: DeviceAnalysis) -> PageTable:
    return PageTable(
        caption=f"FLOPs against time. {FOOTNOTE}",
        heads=("class", "#FLOPs", "-", "#kernel time", "-", "#TFLOP/s", "#slower", "note"),
        rows=[
            [
                swatch(row.name, row.name),
                figure("" if row.flops_share is None else fine_share(row.flops_share), row.flops_share),
                Cell() if row.flops_share is None else bar(row.flops_share, row.name),
                figure(percent(row.time_share), row.time_share),
                bar(row.time_share, row.name),
                figure("" if row.flops_per_s is None else f"{row.flops_per_s / 1e12:.3g}", row.flops_per_s),
                figure("" if row.times_slower is None else f"{row.times_slower:.3g}x", row.times_slower),
                Cell(text=note(row), tone="muted"),
            ]
            for row in flops_rows(device)
        ],
    )


def _waits(device: DeviceAnalysis) -> PageTable:
    return PageTable(
        caption="Waits of the host for the device",
        heads=("call", "where", "#count", "#blocked", "#idle after"),
        rows=[
            [
                *words(place.call, place.python or place.operator or ""),
                figure(str(place.count), place.count),
                figure(duration(place.blocked_ns), place.blocked_ns),
                figure(duration(place.idle_ns), place.idle_ns),
            ]
            for place in device.synchronisations
        ],
    )


def _stalls(device: DeviceAnalysis, view: str | None) -> PageTable:
    return PageTable(
        caption="Longest gaps; each leads into the timeline" if view else "Longest gaps",
        heads=("#length", "#at", "why", "until", "launched by"),
        rows=[
            [
                Cell(
                    text=duration(stall.ns),
                    sort=stall.ns,
                    jump=(view, stall.start_ns, stall.start_ns + stall.ns) if view else None,
                ),
                figure(duration(stall.start_ns), stall.start_ns),
                Cell(text=_stall(stall)),
                Cell(text=plain(stall.ended_by)[:120], title=stall.ended_by),
                Cell(text=stall.python or stall.operator or ""),
            ]
            for stall in device.stalls[:10]
        ],
    )


def _stall(stall: Stall) -> str:
    part = stall.part.replace("_", " ")
    return (
        f"{part}: {CAUSE_WORDS.get(stall.cause, stall.cause)}"
        if stall.cause and part == "host late"
        else part
    )


def _top_kernels(device: DeviceAnalysis) -> PageTable:
    return PageTable(
        caption="Longest kernels",
        heads=("kernel", "operator", "#time", "#count", "#median"),
        rows=[
            [
                Cell(text=plain(kernel.name)[:240], title=kernel.name, colour=kernel.class_),
                Cell(text=kernel.operator or ""),
                figure(duration(kernel.ns), kernel.ns),
                figure(str(kernel.count), kernel.count),
                figure(duration(kernel.median_ns), kernel.median_ns),
            ]
            for kernel in device.top_kernels
        ],
    )


def _steps(trace: TraceAnalysis) -> PageTable:
    longest = max(step.duration_ns for step in trace.steps)
    stats = trace.step_ns
    counted = f"{stats.count} step{'' if stats.count == 1 else 's'}"
    rows = []
    for step in trace.steps[:MOST_STEPS]:
        busy = step.devices[0].busy_ns / max(step.duration_ns, 1) if step.devices else None
        rows.append(
            [
                Cell(text=f"{step.name}{' (early)' if step.early else ''}"),
                figure(duration(step.duration_ns), step.duration_ns),
                bar(step.duration_ns / max(longest, 1), "other" if step.early else "memory"),
                figure("" if busy is None else percent(busy), busy),
            ]
        )
    return PageTable(
        caption=f"{counted}, median {duration(stats.median)}, p99 {duration(stats.p99)}",
        heads=("step", "#duration", "-", "#device busy"),
        rows=rows,
    )


def _signals(trace: TraceAnalysis) -> PageTable:
    return PageTable(
        caption="What each signal says",
        heads=("signal", "says", "#value", "of", "note"),
        rows=[
            [
                *words(each.signal.replace("_", " "), each.says or ""),
                figure(_value(each), each.value),
                *words(_unit(each), each.note),
            ]
            for each in trace.evidence
        ],
    )


def _value(each: Evidence) -> str:
    if each.value is None:
        return ""
    if each.unit.startswith(SHARE_OF):
        return percent(each.value)
    return duration(each.value) if each.unit == "ns" else f"{each.value:.3g}"


def _unit(each: Evidence) -> str:
    return "" if each.unit == "ns" or each.value is None else each.unit.removeprefix(SHARE_OF)


def _ranks(ranks: RankComparison) -> PageTable:
    longest = max((each.busy_ns for each in ranks.ranks), default=1)

    def rows() -> Iterator[list[Cell]]:
        for each in ranks.ranks:
            work_ns = max(each.busy_ns - (each.waiting_ns or 0), 0)
            yield [
                figure("-" if each.rank is None else str(each.rank), each.rank),
                figure(str(each.device), None),
                figure(duration(each.step_median_ns), each.step_median_ns),
                figure(duration(each.busy_ns), each.busy_ns),
                figure(duration(each.communication_ns), each.communication_ns),
                figure(duration(each.waiting_ns), each.waiting_ns),
                bar((each.waiting_ns or 0) / max(longest, 1), "communication"),
                figure(duration(work_ns) if each.waiting_ns is not None else "-", work_ns),
                bar(work_ns / max(longest, 1) if each.waiting_ns is not None else 0.0, "compute"),
                figure(duration(each.late_ns), each.late_ns),
                figure("-" if each.last_in is None else str(each.last_in), each.last_in),
            ]

    return PageTable(
        caption="Every rank; bars compare waiting for peers with work",
        heads=(
            "#rank",
            "#device",
            "#step",
            "#busy in all",
            "#collectives",
            "#waits for peers",
            "-",
            "#works",
            "-",
            "#peers wait for it",
            "#came last",
        ),
        rows=list(rows()),
    )
