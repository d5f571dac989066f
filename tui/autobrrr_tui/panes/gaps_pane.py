"""Mode 4: the last profiler window: idle time by cause, slowest operators; traced operators without one."""

from __future__ import annotations

from dataclasses import dataclass

from autobrrr.quantities import duration, share
from autobrrr.records import ProfilerWindow
from autobrrr_tui.list_choice import UNCHANGED, ListChoice, ListSort, chosen, head, left_out, listed
from autobrrr_tui.text_rows import (
    BLANK,
    Page,
    Row,
    clipped,
    facts,
    heading,
    labelled,
    padded,
    piece,
    row,
    wrapped,
)
from autobrrr_tui.view_state import View

MOST_OPS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRow:
    """One operator in an average step."""

    op: str
    count: float
    ns: float


SORTS: tuple[ListSort[OperatorRow], ...] = (
    ListSort(column="calls", key=lambda each: each.count, falling=True),
    ListSort(column="operator", key=lambda each: each.op),
)


def page(view: View, width: int, height: int, choice: ListChoice = UNCHANGED) -> Page:
    found = view.snapshot
    window = found.window if found is not None else None
    rows: list[Row] = []
    if window is None:
        hint = (
            "w takes one: a few steps under torch.profiler; these take longer, the first by up to seconds"
            if view.acting
            else ""
        )
        rows.append(row("  no profiler window was taken"))
        rows += [row(piece(f"  {line}", "dim")) for line in wrapped(hint, width - 4)]
    elif window.status != "ok":
        rows += [row(f"  {line}") for line in wrapped(f"no window: {window.why}", width - 4, 3)]
    else:
        rows += _window(window, width)
    ops, step_ns, traced = _operators(view)
    if not ops:
        return Page(rows=rows)
    shown = listed(ops, choice, SORTS, lambda each: each.op)[:MOST_OPS]
    sort, names = chosen(SORTS, choice), _names(width)
    said = "kernel time, traced steps" if traced else "own time, in the window"
    rows += [
        BLANK,
        heading(clipped(f"slowest operators in a step: {said}", width - 2)),
        *left_out(len(shown), len(ops), choice),
    ]
    heads = f"{head('calls', 7, sort, right=True)}{'of step':>9}  {'time':<9}"
    rows.append(row(piece(f"  {head('operator', names, sort)} {heads.rstrip()}", "dim")))
    longest = max(each.ns for each in ops)
    picks = {len(rows) + at: each.op for at, each in enumerate(shown)}
    rows += [_operator(each, step_ns, longest, names, width) for each in shown]
    return Page(rows=rows, picks=picks)


def details(view: View, key: str, width: int) -> list[Row]:
    """All that is known of one operator."""
    ops, step_ns, traced = _operators(view)
    each = next((each for each in ops if each.op == key), None)
    if each is None:
        return []
    known = [
        ("operator", each.op, "strong"),
        ("calls", f"{each.count:.0f} a step", "plain"),
        ("time", f"{duration(each.ns)} a step, {share(each.ns / step_ns)} of it", "plain"),
        ("a call", duration(each.ns / each.count) if each.count else "", "plain"),
        ("clock", "kernels of traced steps" if traced else "own time under the profiler", "plain"),
    ]
    return facts(known, width)


def _operators(view: View) -> tuple[list[OperatorRow], float, bool]:
    """Operators, the step that they are a part of in ns, whether they were traced and not profiled."""
    found = view.snapshot
    window = found.window if found is not None else None
    if window is not None and window.by_op:
        ops = [OperatorRow(op=op.op, count=op.count, ns=op.self_ns) for op in window.by_op]
        step_ns = _middle(window.profiled_step_ns)
    else:
        traced = view.details.operators if view.details is not None else []
        ops = [OperatorRow(op=op.op, count=op.count, ns=op.kernel_ns) for op in traced]
        step_ns = found.step_ns.median if found is not None else None
    return ops, step_ns or sum(each.ns for each in ops) or 1.0, window is None or not window.by_op


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
    return rows


def _names(width: int) -> int:
    return max(20, min(48, width - 50))


def _operator(each: OperatorRow, step_ns: float, longest: float, names: int, width: int) -> Row:
    cells = max(0, min(30, width - names - 31))
    return row(
        f"  {padded(each.op, names)} {each.count:>7.0f}{share(each.ns / step_ns):>9}  {duration(each.ns):<9}",
        piece("█" * round(each.ns / longest * cells if longest else 0), "accent"),
    )


def _amount(name: str, part: float, whole: float, width: int, said: str) -> Row:
    """`host late   ██████      28 %  1.2 ms`."""
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
