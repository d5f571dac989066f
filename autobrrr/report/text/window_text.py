"""What was measured on demand: a profiler window, for texts and screens; a sweep over a size of the data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from autobrrr.quantities import duration, share, size
from autobrrr.records import BatchMemory, ProfilerWindow, SizeSweep
from autobrrr.report import page_model as pm

MOST_OPS = 20
MOST_CAUSES = 8
MOST_POINTS = 12
FULL = 0.97  # of the span in which a device is busy


def window_parts(window: ProfilerWindow) -> Iterator[pm.Line | pm.PageTable]:
    """How long its steps took, why each device was idle, the slowest operators."""
    if window.status != "ok":
        yield pm.Line(name="window", text=f"none: {window.why}")
        return
    profiled, plain, after = (
        median(each) if each else None
        for each in (window.profiled_step_ns, window.plain_step_ns, window.after_step_ns)
    )
    longer = f" ({profiled / plain:.2f} times a plain step)" if plain and profiled else ""
    took = f"{len(window.profiled_step_ns)} steps of {duration(profiled)}{longer}"
    stood = "" if window.stall_ns is None else f"; training stood still for {duration(window.stall_ns)}"
    yield pm.Line(name="window", text=took + stood)
    if plain and after:
        said = f"steps since then take {after / plain:.2f} times what they took before"
        yield pm.Line(name="after", text=said)
    if window.cupti == "attached":
        yield pm.Line(name="CUPTI", text="stays in the job: launches are slower from here on", tone="warn")
    shares = {
        "in operators": window.inside_share,
        "in compiled graphs": window.compiled_share,
        "waiting for the loader": window.loader_share,
    }
    inside = [f"{name} {share(part)}" for name, part in shares.items() if part is not None]
    if inside:
        yield pm.Line(name="thread", text=", ".join(inside))
    for gaps in window.gaps:
        idle_ns = max(0, gaps.span_ns - gaps.busy_ns)
        idle = share(idle_ns / gaps.span_ns) if gaps.span_ns else "-"
        causes = sorted(gaps.idle_by_cause_ns.items(), key=lambda each: -each[1])[:MOST_CAUSES]
        parts = [(cause.replace("_", " "), ns / (idle_ns or 1), ns) for cause, ns in causes]
        yield pm.table(
            f"{gaps.device}: idle {idle} of {duration(gaps.span_ns)}, by cause",
            ("", "-", ":share", ":ns"),
            [(named, pm.bar(part, "host"), part, ns) for named, part, ns in parts],
        )
    if window.by_op:
        if any(gaps.span_ns and gaps.busy_ns / gaps.span_ns >= FULL for gaps in window.gaps):
            full = "the device is busy throughout: launches wait in operators for its queue"
            yield pm.Line(text=full, tone="muted")
        ops = [(op.op, op.count, op.self_ns) for op in window.by_op]
        yield operators_table(ops, profiled, "own time under the profiler")


def operators_table(
    ops: Sequence[tuple[str, float, float]], step_ns: float | None, clock: str
) -> pm.PageTable:
    """Operators of an average step.

    Args:
        ops: Name, calls and nanoseconds in a step.
        clock: What the time is.
    """
    whole, longest = step_ns or sum(ns for _, _, ns in ops) or 1.0, max([1.0, *(ns for _, _, ns in ops)])
    a_call = {op: duration(ns / calls) if calls else "" for op, calls, ns in ops}
    return pm.table(
        f"slowest operators in a step: {clock}",
        ("operator", "calls:count", "of step:share", "#-time:ns", "~-"),
        [(op, round(calls), ns / whole, ns, pm.bar(ns / longest, "memory")) for op, calls, ns in ops],
        most=MOST_OPS,
        keys=[op for op, _, _ in ops],
        more={op: [pm.Line(name="a call", text=text)] for op, text in a_call.items()},
        tall=1,
    )


def sweep_parts(sweep: SizeSweep) -> Iterator[pm.Line | pm.PageTable]:
    """What a step takes at other sizes of its data, and what memory."""
    along = f"sweep of the {sweep.along}"
    if sweep.status != "ok" or sweep.size is None:
        yield pm.Line(name=along, text=f"none: {sweep.why}")
        return
    now_ns = next((point.step_ns for point in sweep.points if point.size == sweep.size), None)
    rows = []
    for each in sweep.points:
        times = each.step_ns / now_ns if now_ns else None
        work = None if times is None else each.size / sweep.size / times
        rows.append((each.size, each.step_ns, times, work))
    heads = (f"{sweep.along}:count", "step:ns", "the step:factor", "the work a second:factor")
    yield pm.table(f"{along}, {sweep.size} now", heads, rows, most=MOST_POINTS)
    for note in sweep.notes:
        yield pm.Line(text=note)
    if sweep.memory is not None:
        yield pm.Line(text=memory_text(sweep.memory))


def memory_text(memory: BatchMemory) -> str:
    """What a step takes, what twice the batch would, what fits."""
    text = (
        f"memory of a step: about {size(memory.peak_bytes)} at its peak, "
        f"{size(memory.peak_2x_bytes)} at twice the batch"
    )
    if memory.largest_batch is None:
        return text
    return f"{text}; about {memory.largest_batch} samples fit into {size(memory.free_bytes or 0)}"
