"""Mode 4: the last profiler window: idle time by cause, widest operators; traced operators without one."""

from __future__ import annotations

from autobrrr.records import ProfilerWindow
from autobrrr_tui.shown_figures import duration, share
from autobrrr_tui.text_rows import (
    BLANK,
    Page,
    Row,
    clipped,
    heading,
    labelled,
    padded,
    piece,
    row,
    wrapped,
)
from autobrrr_tui.view_state import View

MOST_OPS = 20


def page(view: View, width: int, height: int) -> Page:
    found = view.snapshot
    window = found.window if found is not None else None
    rows: list[Row] = []
    if window is None:
        hint = (
            "w takes one: a few steps under torch.profiler, with a stall of up to seconds"
            if view.acting
            else ""
        )
        rows += [row("  no profiler window was taken"), row(piece(f"  {hint}", "dim"))]
    elif window.status != "ok":
        rows += [row(f"  {line}") for line in wrapped(f"no window: {window.why}", width - 4, 3)]
    else:
        rows += _window(window, width)
    operators = view.details.operators if view.details is not None else []
    if operators and (window is None or not window.by_op):
        step_ns = found.step_ns.median if found is not None else None
        rows += [BLANK, heading("widest operators of the traced steps, kernel time a step")]
        rows += _operators([(op.op, op.count, op.kernel_ns) for op in operators], step_ns, width)
    return Page(rows=rows)


def _window(window: ProfilerWindow, width: int) -> list[Row]:
    rows: list[Row] = []
    plain, profiled = _middle(window.plain_step_ns), _middle(window.profiled_step_ns)
    longer = "" if not plain or not profiled else f" ({profiled / plain:.2f} times a plain step)"
    said = (
        f"{len(window.profiled_step_ns)} steps of {duration(profiled)}{longer}; "
        f"training stood still for {duration(window.stall_ns)}"
    )
    rows += [labelled("window" if i == 0 else "", line) for i, line in enumerate(wrapped(said, width - 13))]
    inside = [
        f"{name} {share(part)}"
        for name, part in (
            ("in operators", window.inside_share),
            ("in compiled graphs", window.compiled_share),
            ("waiting for the loader", window.loader_share),
        )
        if part is not None
    ]
    if inside:
        rows.append(labelled("thread", ", ".join(inside)))
    for gaps in window.gaps:
        idle_ns = max(0, gaps.span_ns - gaps.busy_ns)
        idle = share(idle_ns / gaps.span_ns) if gaps.span_ns else "-"
        rows += [BLANK, heading(f"{gaps.device}: idle {idle} of {duration(gaps.span_ns)}, by cause")]
        for cause, ns in sorted(gaps.idle_by_cause_ns.items(), key=lambda each: -each[1])[:8]:
            rows.append(_amount(cause.replace("_", " "), ns, max(1, idle_ns), width, duration(ns)))
    if window.by_op:
        rows += [BLANK, heading("widest operators, own time a step")]
        rows += _operators([(op.op, op.count, op.self_ns) for op in window.by_op], profiled, width)
    return rows


def _operators(ops: list[tuple[str, float, float]], step_ns: float | None, width: int) -> list[Row]:
    whole = step_ns or sum(ns for _, _, ns in ops) or 1.0
    return [
        _amount(op, ns, whole, width, f"{duration(ns)}  {count:.0f}x") for op, count, ns in ops[:MOST_OPS]
    ]


def _amount(name: str, part: float, whole: float, width: int, said: str) -> Row:
    """`aten::addmm   ██████      1.2 ms  40x   28 %`."""
    cells = max(6, min(40, width - 66))
    filled = min(cells, round(part / whole * cells))
    return row(
        f"  {padded(name, 30)} ",
        piece("█" * filled, "accent"),
        piece("·" * (cells - filled), "dim"),
        clipped(f"  {share(part / whole):>6}  {said}", 32),
    )


def _middle(values: list[int]) -> float | None:
    return float(sorted(values)[len(values) // 2]) if values else None
