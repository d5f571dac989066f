"""Mode 4: the last profiler window: idle time by cause, slowest operators; traced operators without one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from autobrrr.quantities import duration, share
from autobrrr.records import ProfilerWindow
from autobrrr.report.page_model import Cell, Line, PageTable, bar, cells, count, part_of, time
from autobrrr_tui.page_rows import ScreenPart
from autobrrr_tui.view_state import View

MOST_OPS, MOST_CAUSES = 20, 8
HOW = "w takes one: a few steps under torch.profiler; these take longer, the first by up to seconds"


def parts(view: View, height: int) -> Sequence[ScreenPart]:
    window = view.snapshot.window if view.snapshot is not None else None
    found: list[ScreenPart] = []
    if window is None:
        found = [Line(text="no profiler window was taken"), *[Line(text=HOW, tone="muted")] * view.acting]
    elif window.status != "ok":
        found = [Line(text=f"no window: {window.why}")]
    else:
        found = list(_window(window))
    return [*found, *_operators(view)]


def _operators(view: View) -> Iterator[PageTable]:
    """The operators of an average step: of the window where there is one, else those that were traced."""
    window = view.snapshot.window if view.snapshot is not None else None
    profiled = window is not None and bool(window.by_op)
    if window is not None and profiled:
        ops = [(op.op, op.count, op.self_ns) for op in window.by_op]
        step_ns: float | None = median(window.profiled_step_ns) if window.profiled_step_ns else None
    else:
        ops = [(op.op, op.count, op.kernel_ns) for op in (view.details.operators if view.details else [])]
        step_ns = view.snapshot.step_ns.median if view.snapshot is not None else None
    whole, longest = step_ns or sum(ns for _, _, ns in ops) or 1.0, max([1.0, *(ns for _, _, ns in ops)])
    clock = "own time under the profiler" if profiled else "kernels of traced steps"
    yield from (
        [
            PageTable(
                title=f"slowest operators in a step: {clock}",
                heads=("operator", "#calls", "#of step", "#-time", "~-"),
                rows=[
                    [
                        Cell(text=op),
                        count(round(calls)),
                        part_of(ns / whole),
                        time(ns),
                        bar(ns / longest, "memory"),
                    ]
                    for op, calls, ns in ops
                ],
                most=MOST_OPS,
                keys=[op for op, _, _ in ops],
                more={
                    op: [Line(name="a call", text=duration(ns / calls) if calls else "")]
                    for op, calls, ns in ops
                },
            )
        ]
        if ops
        else []
    )


def _window(window: ProfilerWindow) -> Iterator[ScreenPart]:
    plain, profiled = (
        [median(each)] if each else [] for each in (window.plain_step_ns, window.profiled_step_ns)
    )
    longer = f" ({profiled[0] / plain[0]:.2f} times a plain step)" if plain and profiled else ""
    took = f"{len(window.profiled_step_ns)} steps of {duration(profiled[0] if profiled else None)}{longer}"
    yield Line(name="window", text=f"{took}; training stood still for {duration(window.stall_ns)}")
    shares = {
        "in operators": window.inside_share,
        "in compiled graphs": window.compiled_share,
        "waiting for the loader": window.loader_share,
    }
    inside = [f"{name} {share(part)}" for name, part in shares.items() if part is not None]
    if inside:
        yield Line(name="thread", text=", ".join(inside))
    for gaps in window.gaps:
        idle_ns = max(0, gaps.span_ns - gaps.busy_ns)
        idle = share(idle_ns / gaps.span_ns) if gaps.span_ns else "-"
        causes = sorted(gaps.idle_by_cause_ns.items(), key=lambda each: -each[1])[:MOST_CAUSES]
        yield PageTable(
            title=f"{gaps.device}: idle {idle} of {duration(gaps.span_ns)}, by cause",
            heads=("", "-", "#", "#"),
            rows=[
                [
                    *cells(cause.replace("_", " ")),
                    bar(ns / (idle_ns or 1), "host"),
                    part_of(ns / (idle_ns or 1)),
                    time(ns),
                ]
                for cause, ns in causes
            ],
        )
