"""A profiler window in words: how it was taken, where the device idled, the widest operators."""

from __future__ import annotations

from statistics import median

from autobrrr.quantities import duration, share
from autobrrr.records import ProfilerWindow

MOST_OPS = 8
MOST_CAUSES = 4
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
