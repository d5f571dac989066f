"""What was measured on demand, in words: a profiler window, and a sweep over a size of the data."""

from __future__ import annotations

from statistics import median

from autobrrr.quantities import duration, share
from autobrrr.records import BatchMemory, ProfilerWindow, SizeSweep

MOST_OPS = 8
MOST_CAUSES = 4
MOST_POINTS = 12
FULL = 0.97  # of the span in which a device is busy


def window_text(window: ProfilerWindow) -> str:
    """A few lines; one where there was no window."""
    if window.status != "ok":
        return f"  profiler window: none: {window.why}"
    plain, profiled = window.plain_step_ns, window.profiled_step_ns
    head = f"  profiler window of {len(profiled)} steps"
    if plain and profiled:
        head += (
            f", {duration(int(median(profiled)))} each ({duration(int(median(plain)))} without the profiler)"
        )
    if window.stall_ns is not None:
        head += f"; training stood still {duration(window.stall_ns)}"
    lines = [head]
    if plain and window.after_step_ns:
        since = median(window.after_step_ns) / median(plain)
        lines.append(f"    steps since then take {since:.2f} times what they took before")
    if window.cupti == "attached":
        lines.append("    CUPTI stays in the job: launches are slower from here on")
    if window.inside_share is not None:
        compiled = f" (compiled graphs {share(window.compiled_share)})" if window.compiled_share else ""
        lines.append(f"    host: {share(window.inside_share)} inside operators{compiled}")
    for gaps in window.gaps:
        idle = sorted(gaps.idle_by_cause_ns.items(), key=lambda item: -item[1])
        causes = [
            f"{name.replace('_', ' ')} {share(ns / gaps.span_ns)}" for name, ns in idle[:MOST_CAUSES] if ns
        ]
        busy = share(gaps.busy_ns / gaps.span_ns if gaps.span_ns else None)
        lines.append(
            f"    device {gaps.device}: busy {busy}" + (f"; idle: {', '.join(causes)}" if causes else "")
        )
    if window.by_op:
        full = any(gaps.span_ns and gaps.busy_ns / gaps.span_ns >= FULL for gaps in window.gaps)
        waits = " (the device is busy throughout: launches wait in them for its queue)" if full else ""
        lines.append(f"    host's own time in operators{waits}:")
    for each in window.by_op[:MOST_OPS]:
        lines.append(f"    {duration(int(each.self_ns)):>9} a step in {each.count:.4g} x {each.op}")
    return "\n".join(lines)


def sweep_text(sweep: SizeSweep) -> str:
    """A few lines; one where there was no sweep."""
    if sweep.status != "ok" or sweep.size is None:
        return f"  sweep of the {sweep.along}: none: {sweep.why}"
    now_ns = next((point.step_ns for point in sweep.points if point.size == sweep.size), None)
    lines = [f"  sweep of the {sweep.along}, {sweep.size} now"]
    for point in sweep.points[:MOST_POINTS]:
        times = f", {point.step_ns / now_ns:.2f}x the step" if now_ns else ""
        work = (
            f", {point.size / sweep.size * now_ns / point.step_ns:.2f}x the work a second" if now_ns else ""
        )
        lines.append(f"    {sweep.along} {point.size:>6} {duration(point.step_ns):>9}{times}{work}")
    lines += [f"    {note}" for note in sweep.notes]
    if sweep.memory is not None:
        lines.append(f"    {memory_text(sweep.memory)}")
    return "\n".join(lines)


def memory_text(memory: BatchMemory) -> str:
    """What a step takes, what twice the batch would, what fits."""
    text = (
        f"memory of a step: about {_amount(memory.peak_bytes)} at its peak, "
        f"{_amount(memory.peak_2x_bytes)} at twice the batch"
    )
    if memory.largest_batch is None:
        return text
    return f"{text}; about {memory.largest_batch} samples fit into {_amount(memory.free_bytes or 0)}"


def _amount(count: int) -> str:
    return f"{count / (1 << 30):.3g} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.3g} MiB"
