"""Signal `profiler_window`: what lies between operators and compiled graphs of a few profiled steps.

The profiler lengthens every operator, and what dispatch costs inside one can't be told from its
kernel: the part between them is a lower bound of what kernels leave. On a GPU the device's own
timeline carries the verdict instead (`device_window`).
"""

from __future__ import annotations

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.shares import step_parts
from autobrrr.diagnosis.models.window_parts import window_parts
from autobrrr.diagnosis.robust_stats import duration, median, of_one, positive
from autobrrr.diagnosis.signal_reading import Reading, abstention
from autobrrr.records import ProfilerWindow, Regime

NAME = "profiler_window"
UNIT = "share of step"
FULL = 1 - thresholds.EXCLUDED_AT  # inside operators: nothing between them can be the bottleneck


def profiler_window(measured: Measurements) -> Reading:
    """Speaks for overhead where half of the step lies between operators, outside loader and host code.

    Where host code can't be told from forward by its phase (compiled jobs), it speaks for host where
    half of the step lies between operators and in the user's own code at once.
    """
    window = measured.profile
    if window is None:
        return abstention(NAME, UNIT, "no steps were profiled (--window, or key w)")
    if window.status != "ok":
        return abstention(NAME, UNIT, window.why or "it gave no reason")
    if window.gaps:
        return abstention(NAME, UNIT, "a GPU was active: its own timeline is judged instead")
    if window.inside_share is None:
        return abstention(NAME, UNIT, "the trace shows no operator")
    between = max(0.0, 1 - window.inside_share - (window.loader_share or 0.0))
    host = _host_share(measured)
    overhead = between if host is None else max(0.0, between - host)
    says: Regime | None = None
    if host is not None and overhead >= thresholds.NAMED_AT:
        says = "overhead"
    elif host is None and (parts := window_parts(measured)) and (parts.own or 0.0) >= thresholds.NAMED_AT:
        says = "host"
    return Reading(
        signal=NAME,
        value=overhead,
        unit=UNIT,
        note=_note(window, overhead, host),
        says=says,
        against=("overhead",) if window.inside_share >= FULL and _long_operators(window) else (),
        firm=overhead >= thresholds.NAMED_AT + 0.1,
    )


def inflation(window: ProfilerWindow) -> float | None:
    """Profiled over plain step, medians."""
    profiled, plain = median(window.profiled_step_ns), positive(median(window.plain_step_ns))
    return None if profiled is None or plain is None else profiled / plain


def _host_share(measured: Measurements) -> float | None:
    """The phase outside loading and model; None where forward can't be told from it (compiled jobs)."""
    parts = step_parts(measured)
    if parts is None or "forward" not in parts.phase:
        return None
    return parts.phase.get("other")


def _long_operators(window: ProfilerWindow) -> bool:
    """Whether dispatch can't be what fills the operators: on the mean they take many times its cost."""
    profiled = positive(median(window.profiled_step_ns))
    calls = positive(sum(each.count for each in window.by_op))
    if profiled is None or calls is None or window.inside_share is None:
        return False
    return window.inside_share * profiled / calls >= thresholds.DISPATCH_NS / thresholds.EXCLUDED_AT


def _note(window: ProfilerWindow, overhead: float, host: float | None) -> str:
    step_ns = median(window.profiled_step_ns) or 0.0
    calls = f"{window.operators:.0f} operators" if window.operators is not None else "operators"
    compiled = f", {of_one(window.compiled_share)} in compiled graphs" if window.compiled_share else ""
    longer = inflation(window)
    slower = f", {longer:.2f}x as long as a plain one" if longer is not None else ""
    outside = "" if host is None else " outside loader and host code"
    return (
        f"{of_one(window.inside_share or 0.0)} of a {duration(step_ns)} step inside {calls}{compiled}, "
        f"{of_one(overhead)} between them{outside} (profiled{slower})"
    )
