"""The analysis of traces as one page: no network, no library, light and dark.

Comes in as records and drawn stretches, goes out as HTML. The timeline is drawn by the page's own
script from data that stands in it; everything else is plain tables.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources

import msgspec

from autobrrr.records import Evidence, limit_words
from autobrrr.report.text.trace_flops import FOOTNOTE, fine_share, flops_rows, note
from autobrrr.report.text.trace_text import CAUSE_WORDS, duration, plain
from autobrrr.trace.step_view import StepView
from autobrrr.trace.trace_records import Analysis, DeviceAnalysis, RankComparison, TraceAnalysis

_PARTS = {
    "in_launch": "in the launch call",
    "after_launch": "after the launch",
    "unmatched": "no launch in the file",
}


def page(analysis: Analysis, views: Mapping[str, Sequence[StepView]]) -> str:
    """The page.

    Args:
        analysis: What was found.
        views: Stretches to draw, by file.
    """
    style, script = _asset("trace_page.css"), _asset("trace_page.js")
    body = "".join(_body(analysis, views))
    title = analysis.traces[0].file if len(analysis.traces) == 1 else f"{len(analysis.traces)} traces"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)} - autobrrr analyze</title><style>{style}</style></head>"
        f'<body><main>{body}</main><div id="tip"></div><script>{script}</script></body></html>'
    )


def _body(analysis: Analysis, views: Mapping[str, Sequence[StepView]]) -> Iterator[str]:
    if analysis.ranks is not None:
        yield from _ranks(analysis.ranks)
    for index, trace in enumerate(analysis.traces):
        inner = "".join(_trace(trace, views.get(trace.file, ()), index))
        if len(analysis.traces) == 1:
            yield inner
        else:
            opened = " open" if index == 0 else ""
            head = f"{_text(trace.file)}: {trace.limit}, {trace.regime}"
            yield f"<details{opened}><summary>{head}</summary>{inner}</details>"
    if analysis.skipped:
        yield f"<section><h2>Passed over</h2>{_list(analysis.skipped)}</section>"


def _trace(trace: TraceAnalysis, views: Sequence[StepView], index: int) -> Iterator[str]:
    rank = "" if trace.rank is None else f", rank {trace.rank}"
    sure = "" if trace.regime in ("mixed", "unknown") else f"<small>{trace.confidence} confidence</small>"
    yield f'<h1>{_text(trace.file)}</h1><p class="muted">{_text(trace.gpu or "GPU unknown")}{rank}, '
    yield f"{trace.events} events, {trace.json_bytes / 1e6:.1f} MB</p>"
    head = limit_words(trace.limit, trace.limit_confidence)
    yield f'<section><h2>Verdict</h2><p class="regime">{head}</p><p>{_text(trace.limit_reason)}</p>'
    yield f'<p class="regime"><small>regime: {trace.regime}</small>{sure}</p><p>{_text(trace.reason)}</p>'
    if trace.decide_with:
        yield f'<p class="muted">What would decide: {_text(trace.decide_with)}</p>'
    if trace.devices:
        shares = {name: getattr(trace.shares, name) or 0.0 for name in trace.shares.__struct_fields__}
        yield _stacked(shares)
    if len(trace.devices) == 1:
        yield f'<p class="muted">{_extent(trace.devices[0])}</p>'
    yield "</section>"
    if trace.findings:
        yield f"<section><h2>What stands out</h2>{_list(trace.findings)}</section>"
    if trace.advice:
        rows = [
            f'<span class="gain">up to {each.gain:.2f}x</span> {_text(each.text)}'
            + (f" Where: <code>{_text(each.where)}</code>." if each.where else "")
            for each in trace.advice
        ]
        yield "<section><h2>Advice</h2><ul>" + "".join(f"<li>{row}</li>" for row in rows)
        yield '</ul><p class="muted">Each bound alone: the speed if all of that time were gone.</p></section>'
    for number, view in enumerate(views):
        yield _timeline(view, f"view-{index}-{number}")
    for device in trace.devices:
        yield from _device(device, len(trace.devices) > 1)
    if trace.steps:
        yield _steps(trace)
    if trace.evidence:
        yield from _evidence(trace)
    if trace.warnings:
        yield f"<section><h2>To know about this trace</h2>{_list(trace.warnings)}</section>"


def _timeline(view: StepView, name: str) -> str:
    data = msgspec.json.encode(view).decode().replace("</", "<\\/")
    return (
        f'<section class="timeline"><h2>Timeline: {_text(view.title)}, device {view.device}</h2>'
        f'<canvas data-view="{name}"></canvas><p class="muted">Wheel: zoom. Drag: move. Double click: all'
        " of it."
        ' Arrows go from launch to kernel.</p><script type="application/json"'
        f' id="{name}">{data}</script></section>'
    )


def _device(device: DeviceAnalysis, several: bool) -> Iterator[str]:
    if several:
        yield f"<section><h2>Device {device.device}</h2><p>{_extent(device)}, "
        yield f"{limit_words(device.limit, device.limit_confidence)}: {_text(device.limit_reason)}; "
        yield f"regime {device.regime}: {_text(device.reason)}</p></section>"
    yield "<div class='columns'>"
    yield "<section><h2>Why the device was idle</h2>" + _causes(device) + "</section>"
    yield "<section><h2>Kernels by class</h2>" + _kernels(device) + "</section></div>"
    yield from _flops(device)
    yield from _places(device)
    rows = [
        [
            f'<td class="name" title="{_text(kernel.name)}">{_swatch(kernel.class_)}'
            f"{_text(plain(kernel.name)[:240])}</td>",
            f"<td>{_text(kernel.operator or '')}</td>",
            _number(duration(kernel.ns)),
            _number(str(kernel.count)),
            _number(duration(kernel.median_ns)),
        ]
        for kernel in device.top_kernels
    ]
    if rows:
        yield "<section><h2>Longest kernels</h2>"
        yield _table(["kernel", "operator", "#time", "#count", "#median"], rows) + "</section>"


def _extent(device: DeviceAnalysis) -> str:
    span = max(device.span_ns, 1)
    busy, idle = device.busy_ns / span, device.idle_ns / span
    return f"{duration(device.span_ns)} of the device, busy {busy:.1%}, idle {idle:.1%}"


def _causes(device: DeviceAnalysis) -> str:
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
    total = max(device.idle_ns, 1)
    lines = [
        [
            f"<td>{_swatch(name)}{_text(words)}</td>",
            _number(duration(ns)),
            _number(f"{ns / total:.1%}"),
            _bar(ns / total, name),
        ]
        for ns, name, words in sorted(rows, reverse=True)
        if ns > 0
    ]
    note = '<p class="muted">With the device\'s clock moved by a constant.</p>' if clock else ""
    return _table(["cause", "#time", "#of idle", ""], lines) + note


def _kernels(device: DeviceAnalysis) -> str:
    lines = [
        [
            f"<td class='class'>{_swatch(name)}{name}</td>",
            _number(duration(kernels.ns)),
            _number(f"{kernels.share:.1%}"),
            _number(str(kernels.count)),
            _number(
                f"{kernels.flops / kernels.counted_ns / 1e3:.3g}"
                if kernels.flops and kernels.counted_ns
                else ""
            ),
            _bar(kernels.share, name),
        ]
        for name, kernels in device.kernels.items()
    ]
    return _table(["class", "#time", "#share", "#count", "#TFLOP/s", ""], lines)


def _flops(device: DeviceAnalysis) -> Iterator[str]:
    rows = [
        [
            f"<td class='class'>{_swatch(row.name)}{row.name}</td>",
            _number("" if row.flops_share is None else fine_share(row.flops_share)),
            _bar(row.flops_share, row.name) if row.flops_share is not None else "<td></td>",
            _number(f"{row.time_share:.1%}"),
            _bar(row.time_share, row.name),
            _number("" if row.flops_per_s is None else f"{row.flops_per_s / 1e12:.3g}"),
            _number("" if row.times_slower is None else f"{row.times_slower:.3g}x"),
            f'<td class="muted">{_text(note(row))}</td>',
        ]
        for row in flops_rows(device)
    ]
    if rows:
        heads = ["class", "#FLOPs", "", "#kernel time", "", "#TFLOP/s", "#slower", ""]
        yield "<section><h2>FLOPs against time</h2>" + _table(heads, rows)
        yield f'<p class="muted">{FOOTNOTE}</p></section>'


def _places(device: DeviceAnalysis) -> Iterator[str]:
    if device.synchronisations:
        rows = [
            [
                f"<td>{_text(place.call)}</td>",
                f'<td class="name">{_text(place.python or place.operator or "")}</td>',
                _number(str(place.count)),
                _number(duration(place.blocked_ns)),
                _number(duration(place.idle_ns)),
            ]
            for place in device.synchronisations
        ]
        yield "<section><h2>Waits of the host for the device</h2>"
        yield _table(["call", "where", "#count", "#blocked", "#idle after"], rows) + "</section>"
    if device.stalls:
        rows = [
            [
                _number(duration(stall.ns)),
                _number(duration(stall.start_ns)),
                f"<td>{_text(_stall(stall.part, stall.cause))}</td>",
                f'<td class="name" title="{_text(stall.ended_by)}">{_text(plain(stall.ended_by)[:120])}</td>',
                f'<td class="name place">{_text(stall.python or stall.operator or "")}</td>',
            ]
            for stall in device.stalls[:10]
        ]
        yield "<section><h2>Longest gaps</h2>"
        yield _table(["#length", "#at", "why", "until", "launched by"], rows) + "</section>"


def _stall(part: str, cause: str | None) -> str:
    words = part.replace("_", " ")
    return f"{words}: {CAUSE_WORDS.get(cause, cause)}" if cause and part == "host_late" else words


def _steps(trace: TraceAnalysis) -> str:
    longest = max(step.duration_ns for step in trace.steps)
    rows = [
        [
            f"<td>{_text(step.name)}{' (early)' if step.early else ''}</td>",
            _number(duration(step.duration_ns)),
            _bar(step.duration_ns / max(longest, 1), "other" if step.early else "memory"),
            _number(f"{step.devices[0].busy_ns / max(step.duration_ns, 1):.0%}" if step.devices else ""),
        ]
        for step in trace.steps[:40]
    ]
    stats = trace.step_ns
    counted = f"{stats.count} step" + ("" if stats.count == 1 else "s")
    head = f"<p>{counted}, median {duration(stats.median)}, p99 {duration(stats.p99)}</p>"
    return f"<section><h2>Steps</h2>{head}{_table(['step', '#duration', '', '#device busy'], rows)}</section>"


def _evidence(trace: TraceAnalysis) -> Iterator[str]:
    rows = [
        [
            f"<td>{_text(each.signal.replace('_', ' '))}</td>",
            f"<td>{_text(each.says or '')}</td>",
            _number(_value(each)),
            f"<td>{_text('' if each.unit == 'ns' else each.unit)}</td><td>{_text(each.note)}</td>",
        ]
        for each in trace.evidence
    ]
    yield (
        "<section><h2>Signals</h2>" + _table(["signal", "says", "#value", "of", "note"], rows) + "</section>"
    )


def _value(each: Evidence) -> str:
    if each.value is None:
        return ""
    return duration(each.value) if each.unit == "ns" else f"{each.value:.3g}"


def _ranks(ranks: RankComparison) -> Iterator[str]:
    rows = [
        [
            _number("-" if each.rank is None else str(each.rank)),
            _number(str(each.device)),
            _number(duration(each.step_median_ns)),
            _number(duration(each.busy_ns)),
            _number(duration(each.communication_ns)),
            _number(duration(each.waiting_ns)),
            _number(duration(each.late_ns)),
            _number("-" if each.last_in is None else str(each.last_in)),
        ]
        for each in ranks.ranks
    ]
    heads = [
        "#rank",
        "#device",
        "#step",
        "#busy",
        "#collectives",
        "#waits for peers",
        "#peers wait for it",
        "#came last",
    ]
    yield f"<section><h2>Ranks</h2><p>{_text(ranks.note)}</p>{_table(heads, rows)}</section>"


def _stacked(shares: Mapping[str, float]) -> str:
    ranked = sorted(((share, name) for name, share in shares.items() if share >= 0.001), reverse=True)
    bars = "".join(
        f'<span style="flex:{share:.4f};background:var(--{name})" title="{name} {share:.1%}"></span>'
        for share, name in ranked
    )
    legend = "".join(f"<span>{_swatch(name)}{name} {share:.1%}</span>" for share, name in ranked)
    return f'<div class="stack">{bars}</div><div class="legend">{legend}</div>'


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(
        f'<th class="n">{head[1:]}</th>' if head.startswith("#") else f"<th>{head}</th>" for head in heads
    )
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _list(lines: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{_text(line)}</li>" for line in lines) + "</ul>"


def _number(text: str) -> str:
    return f'<td class="n">{_text(text)}</td>'


def _swatch(name: str) -> str:
    return f'<i style="background:var(--{name})"></i>'


def _bar(share: float, name: str) -> str:
    style = f"width:{share:.2%};background:var(--{name})"
    return f'<td class="barcell"><span class="bar" style="{style}"></span></td>'


def _text(text: str) -> str:
    return html.escape(text)


def _asset(name: str) -> str:
    return resources.files("autobrrr.report.html").joinpath(name).read_text(encoding="utf-8")
