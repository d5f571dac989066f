"""What kernels leave to Python and the dispatcher: by traced steps, by the batch, by count, by a window.

Signal `traced_steps`: the part of the step that kernels leave to Python and the dispatcher.

K is the kernel work of real steps under torch's CPU profiler; forward, backward and optimizer
less their K is overhead; so is what counts as K in calls too short to be kernels, where the step doesn't
grow with the batch.

Signal `batch_probe`: the part of the step that does not grow with the batch.

It never decides alone: weights and optimizer state that are moved once per step are fixed too.

Signal `op_cost`: operators counted in a step, times what dispatching one takes in this process.

It is the least that they take: Python between operators and the modules' calls are not in it. So a low
value excludes nothing, and a third of the step confirms what another clock says of half.

Signal `profiler_window`: what lies between operators and compiled graphs of a few profiled steps.

The profiler lengthens every operator, and what dispatch costs inside one can't be told from its
kernel: the part between them is a lower bound of what kernels leave. On a GPU the device's own
timeline carries the verdict instead (`device_window`).
"""

from __future__ import annotations

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.batch_fit import fit_batch
from autobrrr.diagnosis.models.cpu_delay import is_oversubscribed
from autobrrr.diagnosis.models.shares import overhead_share, short_dispatch, step_parts
from autobrrr.diagnosis.models.traced_kernels import KernelWork, busy_while_traced, kernel_work
from autobrrr.diagnosis.models.window_parts import window_parts
from autobrrr.diagnosis.robust_stats import duration, median, of_one, positive
from autobrrr.diagnosis.signal_reading import STEP, Reading, abstention, weighed
from autobrrr.records import BatchProbe, ProfilerWindow, Regime

FULL = 1 - thresholds.EXCLUDED_AT  # inside operators: nothing between them can be the bottleneck


def traced_steps(measured: Measurements) -> Reading:
    """Speaks for overhead at half of the step, against it at a quarter."""
    if measured.traced is None and (measured.readonly or measured.outside):
        return abstention("traced_steps", STEP, "a read-only session traces no step")
    work = kernel_work(measured.traced)
    if not isinstance(work, KernelWork):
        return abstention("traced_steps", STEP, work)
    parts = step_parts(measured)
    share = None if parts is None else overhead_share(measured, parts)
    if parts is None or share is None:
        return _whole_step(work, is_oversubscribed(measured))
    short = short_dispatch(measured, parts)
    counted = f" ({work.operations:.0f} operators)" if work.operations else ""
    note = (
        f"kernels work {of_one(work.share)} of a traced step{counted}; "
        f"they leave {of_one(share)} of it idle in forward, backward and optimizer"
        + (f"; {of_one(short)} are calls too short to be kernels" if short else "")
    )
    surely, share = share, min(1.0, share + short)
    # In threads that wait for each other, what looks like a kernel may be no work.
    excludes, firm = not is_oversubscribed(measured), surely - work.spread / 2 >= thresholds.NAMED_AT
    return weighed("traced_steps", STEP, "overhead", share, note, firm=firm, excludes=excludes)


def _whole_step(work: KernelWork, crowded: bool) -> Reading:
    """Loading or less work can't be told from overhead; kernels can still exclude both."""
    left = 1 - work.share
    why = "; its phases were not measured"
    if work.at_least:
        why = " at most: traced steps were faster than plain ones, and did less"
    excludes = left <= thresholds.EXCLUDED_AT and not crowded
    against: tuple[Regime, ...] = ("overhead",) if excludes else ()
    return Reading(
        signal="traced_steps",
        value=left,
        unit=STEP,
        note=f"kernels leave {of_one(left)} of a traced step{why}",
        against=against,
        abstained=not against,
    )


def batch_probe(measured: Measurements) -> Reading:
    """Speaks for overhead where half of the step is fixed, against it at a quarter."""
    if measured.probe is None:
        if measured.readonly or measured.outside:
            return abstention("batch_probe", STEP, "a read-only session replays nothing")
        if measured.probing == "off":
            return abstention("batch_probe", STEP, "switched off by --no-probe")
    fit = fit_batch(measured.probe)
    if isinstance(fit, BatchProbe):
        return abstention("batch_probe", STEP, fit.why or "no fit")
    firm = fit.share - fit.error >= thresholds.NAMED_AT and fit.enough
    fixed = f"{of_one(fit.share)} of the step does not grow with the batch"
    note = f"{fixed}{doubling(fit.probe)}{_fitting(measured)}"
    return weighed("batch_probe", STEP, "overhead", fit.share, note, firm=firm)


def _fitting(measured: Measurements) -> str:
    memory = None if measured.probe is None else measured.probe.memory
    if memory is None or memory.largest_batch is None:
        return ""
    return f"; memory for about {memory.largest_batch} samples"


def doubling(probe: BatchProbe) -> str:
    """What doubling the batch would do, as the end of a sentence; empty where it is not known."""
    if probe.ratio_2x_interval is None:
        return ""
    low, high = (f"{end:.2f}" for end in probe.ratio_2x_interval)
    times = f"{low}x" if low == high else f"{low} to {high}x"
    return f"; doubling the batch would take {times} the time"


def op_cost(measured: Measurements) -> Reading:
    """Speaks for overhead where dispatch alone makes a third of the step, firmly from a half on."""
    traced = measured.traced
    if traced is None or traced.status != "ok":
        return abstention("op_cost", STEP, "no step was traced, so operators were not counted")
    operations, cost_ns = positive(median(traced.operations)), positive(traced.op_cost_ns)
    if operations is None or cost_ns is None:
        return abstention("op_cost", STEP, "the time of one operator was not calibrated")
    plain_ns = positive(median(traced.plain_step_ns))
    if plain_ns is None or len(traced.plain_step_ns) < thresholds.TRACED_STEPS:
        return abstention("op_cost", STEP, "too few plain steps")
    busy = busy_while_traced(traced)
    if busy is not None:
        return abstention("op_cost", STEP, busy)
    work = kernel_work(traced)
    if isinstance(work, KernelWork) and work.by_each:  # of the same steps, which the profiler makes longer
        plain_ns = max(plain_ns, operations * sum(traced.traced_step_ns) / max(1, sum(traced.operations)))
    raw = operations * cost_ns / plain_ns
    if raw > 1.5:
        exceeds = f"{operations:.0f} operators x {duration(cost_ns)} exceed the step: calibration is off"
        return abstention("op_cost", STEP, exceeds)
    share = min(1.0, raw)
    says: Regime | None = "overhead" if share >= thresholds.DISPATCH_AT else None
    return Reading(
        signal="op_cost",
        value=share,
        unit=STEP,
        note=f"{operations:.0f} operators x {duration(cost_ns)} of dispatch = {of_one(share)} of the step",
        says=says,
        firm=len(traced.operations) >= thresholds.TRACED_STEPS and share >= thresholds.NAMED_AT,
    )


def profiler_window(measured: Measurements) -> Reading:
    """Speaks for overhead where half of the step lies between operators, outside loader and host code.

    Where host code can't be told from forward by its phase (compiled jobs), it speaks for host where
    half of the step lies between operators and in the user's own code at once.
    """
    window = measured.profile
    if window is None:
        return abstention("profiler_window", STEP, "no steps were profiled (--window, or key w)")
    if window.status != "ok":
        return abstention("profiler_window", STEP, window.why or "it gave no reason")
    if window.gaps:
        return abstention("profiler_window", STEP, "a GPU was active: its own timeline is judged instead")
    if window.inside_share is None:
        return abstention("profiler_window", STEP, "the trace shows no operator")
    between = max(0.0, 1 - window.inside_share - (window.loader_share or 0.0))
    host = _host_share(measured)
    overhead = between if host is None else max(0.0, between - host)
    says: Regime | None = None
    if host is not None and overhead >= thresholds.NAMED_AT:
        says = "overhead"
    elif host is None and (parts := window_parts(measured)) and (parts.own or 0.0) >= thresholds.NAMED_AT:
        says = "host"
    return Reading(
        signal="profiler_window",
        value=overhead,
        unit=STEP,
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
