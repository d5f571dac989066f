"""The analysis of traces for people: 80 columns, the widest cause first, bars.

Comes in as records, goes out as text; colour is the caller's business and there is none here.
"""

from __future__ import annotations

from collections.abc import Iterator

from autobrrr.quantities import duration, whole_words
from autobrrr.quantities import share as percent
from autobrrr.readable import readable
from autobrrr.records import limit_words
from autobrrr.report.rank_sentence import rank_sentence, read_first
from autobrrr.report.trace_flops import FOOTNOTE, FlopsRow, fine_share, flops_rows, note
from autobrrr.trace.causes.host_causes import CAUSE_WORDS
from autobrrr.trace.trace_records import (
    Analysis,
    DeviceAnalysis,
    RankComparison,
    TraceAdvice,
    TraceAnalysis,
)

WIDTH = 80
_BAR = 24
_BLOCKS = " ▏▎▍▌▋▊▉█"


def render(analysis: Analysis) -> str:
    """The whole report."""
    blocks = ["\n".join(line.rstrip() for line in _trace(trace)) for trace in read_first(analysis)]
    if analysis.ranks is not None:
        blocks.insert(0, "\n".join(_ranks(analysis.ranks)))
    if analysis.skipped:
        blocks.append("\n".join(f"passed over: {line}" for line in analysis.skipped))
    return "\n\n".join(blocks)


def wrapped(text: str, first: str = "", rest: str = "") -> Iterator[str]:
    """Lines of at most `WIDTH` columns."""
    line = first
    empty = True
    for word in map(readable, whole_words(text)):
        gap = "" if empty else " "
        if not empty and len(line) + len(gap) + len(word) > WIDTH:
            yield line
            line, gap = rest, ""
        line += gap + word
        empty = False
    yield line


def bar(share: float, width: int = _BAR) -> str:
    """A share as a bar, in eighths of a column."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    whole, part = divmod(eighths, 8)
    text = "█" * whole + (_BLOCKS[part] if part else "")
    return text.ljust(width)


def _trace(trace: TraceAnalysis) -> Iterator[str]:
    rank = "" if trace.rank is None else f"   rank {trace.rank}"
    yield from wrapped(trace.file)
    gpu = readable(trace.gpu or "GPU unknown")
    yield f"{gpu}{rank}   {trace.events} events, {trace.json_bytes / 1e6:.1f} MB"
    yield ""
    yield limit_words(trace.limit, trace.limit_confidence)
    yield from wrapped(trace.limit_reason, "  ", "  ")
    sure = f" ({trace.confidence} confidence)" if trace.regime not in ("mixed", "unknown") else ""
    yield f"regime: {trace.regime}{sure}"
    yield from wrapped(trace.reason, "  ", "  ")
    if trace.decide_with:
        yield from wrapped(f"what would decide: {trace.decide_with}", "  ", "  ")
    if trace.findings:
        yield ""
        for line in trace.findings:
            yield from wrapped(line, "  ! ", "    ")
    if trace.advice:
        yield ""
        yield "advice (each figure by itself: the speed if all of that time were gone)"
        for each in trace.advice:
            yield from _advice(each)
    for device in trace.devices:
        yield ""
        yield from _device(device, len(trace.devices) > 1)
    if trace.steps:
        yield ""
        yield from _steps(trace)
    if trace.warnings:
        yield ""
        yield "notes on this trace"
        for line in trace.warnings:
            yield from wrapped(line, "  - ", "    ")


def _device(device: DeviceAnalysis, several: bool) -> Iterator[str]:
    span = max(device.span_ns, 1)
    verdict = (
        f", {limit_words(device.limit, device.limit_confidence)}, regime {device.regime}" if several else ""
    )
    yield from wrapped(
        f"device {device.device}: {duration(device.span_ns)}, busy {percent(device.busy_ns / span)},"
        f" idle {percent(device.idle_ns / span)}{verdict}"
    )
    yield ""
    yield from _shares(device)
    if device.idle_ns:
        yield ""
        yield from _idle(device)
    if device.kernels:
        yield ""
        yield from _kernels(device)
    if rows := flops_rows(device):
        yield ""
        yield from _flops(rows)
    if device.communication_ns:
        yield ""
        yield (
            f"communication {duration(device.communication_ns)}, exposed"
            f" {duration(device.exposed_communication_ns)} ({percent(device.exposed_communication_ns / span)}"
            " of the span)"
        )
    if device.synchronisations:
        yield ""
        yield "waits of the host for the device"
        for place in device.synchronisations[:5]:
            yield _cut(
                f"  {place.count:5d} x {place.call:<24} blocked {duration(place.blocked_ns):>8}"
                f"  idle after {duration(place.idle_ns):>8}"
            )
            if where := place.python or place.operator:
                yield _cut(f"          in {where}")
    if device.host_code:
        yield ""
        yield "Python that holds the host while the device idles"
        for code in device.host_code:
            yield _cut(f"  {code.count:5d} x  {duration(code.idle_ns):>8}  {code.python}")
    if device.gap_groups and device.gap_groups[0].count > 1:
        yield ""
        yield "gaps that are alike, by what ends them"
        for group in device.gap_groups[:5]:
            yield _cut(
                f"  {percent(group.share):>7} {group.count:6d} x {duration(group.median_ns):>8}"
                f"  before {plain(group.ended_by)}"
            )
            if inside := ", ".join(each for each in (group.python, group.annotation) if each):
                yield _cut(f"          in {inside}")
    if device.stalls:
        yield ""
        yield "longest gaps"
        for stall in device.stalls[:5]:
            cause = CAUSE_WORDS.get(stall.cause or "", "") if stall.part == "host_late" else ""
            what = stall.part.replace("_", " ") + (f", {cause}" if cause else "")
            yield _cut(
                f"  {duration(stall.ns):>8} at {duration(stall.start_ns):>8}  {what:<28}"
                f" until {plain(stall.ended_by)}"
            )


def _shares(device: DeviceAnalysis) -> Iterator[str]:
    shares = {name: getattr(device.shares, name) for name in device.shares.__struct_fields__}
    rows = sorted(((share, name) for name, share in shares.items() if share), reverse=True)
    yield device.judged_time.replace("the device's time", "time of the device")
    for share, name in rows:
        if share >= 0.005:
            yield f"  {name:<22} {percent(share):>7}  {bar(share)}"


def _idle(device: DeviceAnalysis) -> Iterator[str]:
    idle = device.idle_clock_corrected.idle if device.idle_clock_corrected else device.idle
    late = (
        device.idle_clock_corrected.host_late_by_cause_ns
        if device.idle_clock_corrected
        else device.host_late_by_cause_ns
    )
    note = " (clock corrected)" if device.idle_clock_corrected else ""
    yield f"idle, {duration(device.idle_ns)} in {device.gaps} gaps{note}"
    rows = [(ns, f"host late: {CAUSE_WORDS[cause]}") for cause, ns in late.items()]
    rows += [
        (idle.in_launch_ns, "in the launch call"),
        (idle.after_launch_ns, "after the launch"),
        (idle.unmatched_ns, "no launch in the file"),
    ]
    for ns, name in sorted(rows, reverse=True):
        if ns >= 0.001 * device.idle_ns:
            share = ns / device.idle_ns
            yield f"  {name:<30} {duration(ns):>9} {percent(share):>7}  {bar(share)}"
    after = device.host_late_after_synchronisation_ns
    if after > 0.01 * device.idle_ns:
        yield from wrapped(f"of host late, {duration(after)} began in a wait for the device", "  ", "  ")


def _kernels(device: DeviceAnalysis) -> Iterator[str]:
    yield f"kernels, {device.kernel_count} from {device.launches} launches"
    for name, kernels in device.kernels.items():
        notes = []
        if kernels.flops and kernels.counted_ns:
            notes.append(f"{kernels.flops / kernels.counted_ns / 1e3:.3g} TFLOP/s")
        if kernels.plain_ns and kernels.ns and kernels.plain_ns > 0.05 * kernels.ns:
            notes.append(f"{percent(kernels.plain_ns / kernels.ns)} without tensor cores")
        if kernels.underfilled_ns and kernels.underfilled_ns > 0.1 * kernels.ns and name != "communication":
            notes.append(f"{percent(kernels.underfilled_ns / kernels.ns)} underfilled")
        figures = f"{duration(kernels.ns):>9} {percent(kernels.share):>7} {kernels.count:7d}"
        yield f"  {name:<14} {figures}  {bar(kernels.share, 14)}"
        if notes:
            yield f"  {'':<14} {', '.join(notes)}"


def _flops(rows: list[FlopsRow]) -> Iterator[str]:
    yield "FLOPs against time, of what could be counted"
    yield f"  {'':<14} {'FLOPs':>8} {'time':>7} {'FLOP/s':>9} {'slower':>8}"
    for row in rows:
        if row.time_share < 0.001:
            continue
        flops = "-" if row.flops_share is None else fine_share(row.flops_share)
        speed = "-" if row.flops_per_s is None else _tera(row.flops_per_s)
        slower = "-" if row.times_slower is None else f"{row.times_slower:.3g}x"
        figures = f"{flops:>8} {percent(row.time_share):>7} {speed:>9} {slower:>8}"
        yield f"  {row.name:<14} {figures}  {note(row)}".rstrip()
    if any("*" in note(row) for row in rows):
        yield f"  {FOOTNOTE}"


def _tera(flops_per_s: float) -> str:
    return f"{flops_per_s / 1e12:.3g} T"


def _steps(trace: TraceAnalysis) -> Iterator[str]:
    stats = trace.step_ns
    yield (
        f"steps: {stats.count}, median {duration(stats.median)}, p99 {duration(stats.p99)}"
        f" ({sum(step.early for step in trace.steps)} early ones left out)"
    )
    for step in trace.steps[:12]:
        first = step.devices[0] if step.devices else None
        busy = f"  busy {percent(first.busy_ns / max(step.duration_ns, 1)):>7}" if first else ""
        mark = "  early" if step.early else ""
        yield _cut(f"  {step.name:<20} {duration(step.duration_ns):>9}{busy}{mark}")
    if len(trace.steps) > 12:
        yield f"  ... and {len(trace.steps) - 12} more"


def _advice(each: TraceAdvice) -> Iterator[str]:
    bound = f"up to {each.gain:.2f}x: " if each.gain is not None else ""
    where = f" Where: {each.where}." if each.where else ""
    yield from wrapped(f"{bound}{each.text}{where}", "  * ", "    ")


def _ranks(ranks: RankComparison) -> Iterator[str]:
    if said := rank_sentence(ranks):
        yield from wrapped(said)
        yield ""
    yield f"ranks, {ranks.matched_collectives} collectives matched"
    yield from wrapped(ranks.note, "  ", "  ")
    times = f"{'step':>9} {'busy':>9} {'collectives':>12} {'waits':>9} {'awaited':>9}"
    yield f"  {'rank':<6} {'dev':<4} {times} {'last':>5}"
    for each in ranks.ranks:
        yield _cut(
            f"  {_or_dash(each.rank):<6} {each.device!s:<4}"
            f" {duration(each.step_median_ns):>9} {duration(each.busy_ns):>9}"
            f" {duration(each.communication_ns):>12}"
            f" {duration(each.waiting_ns):>9} {duration(each.late_ns):>9}"
            f" {_or_dash(each.last_in):>5}"
        )


def plain(name: str) -> str:
    """A kernel's name without return type and namespaces that say nothing."""
    for noise in ("void ", "at::native::", "(anonymous namespace)::"):
        name = name.replace(noise, "")
    return name


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)
