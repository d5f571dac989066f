"""What a remedy would remove from the step as measured, as a factor on steps per second.

The costs of fused and list-wise optimizers are a small model, in units of the job's own calibrated
cost of one operator: measured on torch 2.13, 6 to 100 parameter tensors of 64 and 4 to 12 of 262 k
to 1 M elements, for Adam(W) and SGD with and without momentum.
"""

from __future__ import annotations

from dataclasses import dataclass

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.advice.compiled_gain import compiled_gain
from autobrrr.diagnosis.ledger import WORKER_START, loading_parts
from autobrrr.diagnosis.measurements import Measurements, step_stats
from autobrrr.diagnosis.models.batch_fit import BatchFit, fit_batch
from autobrrr.diagnosis.models.cpu_delay import is_oversubscribed
from autobrrr.diagnosis.models.roofs import Roofs, roofs
from autobrrr.diagnosis.models.sampled_frames import standing_at_least
from autobrrr.diagnosis.models.shares import StepParts, step_parts, worth_freezing
from autobrrr.diagnosis.models.traced_kernels import KernelWork, kernel_work
from autobrrr.diagnosis.models.window_parts import window_parts
from autobrrr.diagnosis.robust_stats import median, positive
from autobrrr.diagnosis.signals.kernels import fault_share
from autobrrr.diagnosis.signals.loading import loading_sleeps, workers_keep_up

HIGHEST = 100.0  # a factor beyond it says that the step was not measured well


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerCost:
    """An optimizer step's cost: operators' worth of dispatch, and what is left of its kernel work."""

    base: float
    each_tensor: float
    kernels: float

    def step_ns(self, *, tensors: int, kernel_ns: float, op_cost_ns: float) -> float:
        """Predicted duration of one optimizer step."""
        return (self.base + self.each_tensor * tensors) * op_cost_ns + self.kernels * kernel_ns


COSTS = {
    "optimizer.fused": {
        "Adam": OptimizerCost(base=10, each_tensor=1.25, kernels=0.3),
        "SGD": OptimizerCost(base=7.5, each_tensor=0.5, kernels=0.6),
        "plain SGD": OptimizerCost(base=7, each_tensor=0.3, kernels=1.0),
    },
    "optimizer.foreach": {
        "Adam": OptimizerCost(base=24, each_tensor=4.8, kernels=1.0),
        "SGD": OptimizerCost(base=9.5, each_tensor=1.35, kernels=1.0),
        "plain SGD": OptimizerCost(base=7, each_tensor=0.4, kernels=1.0),
    },
}
SCALES = 0.6  # of what threads save at best; five scripts with a second thread ran 1.09x to 1.77x as fast
ALL_BUSY = 0.8  # of its speed alone each CPU keeps: nine loaders on two CPUs, the median
MARKS = {
    "optimizer.fused": ("_fused_",),
    # Clipping and scaling of gradients use lists too: only the updates' own operators count.
    "optimizer.foreach": ("_foreach_addc", "_foreach_lerp", "_foreach_add_"),
}


def predicted_gain(measured: Measurements) -> dict[str, float]:
    """Factor on speed by remedy, for those whose effect the measured step shows; 1.0 = none."""
    found: dict[str, float | None] = {"batch.larger": _larger_batch(measured)}
    found["host.malloc"] = _without(fault_share(measured))
    found["gc.freeze"] = _without(worth_freezing(measured))
    starting = loading_parts(measured).get(WORKER_START)
    share = 0.0 if starting is None else starting.share
    found["loader.persistent_workers"] = _without(share) if share >= thresholds.SETTING_AT else None
    more = more_threads(measured)
    found["threads.intra_op"] = _without(_waiting_kernels(measured) if more is None else SCALES * more[1])
    parts, work = step_parts(measured), kernel_work(measured.traced)
    if parts is not None:
        found["loader.workers"] = _workers(measured, parts)
        compiled = compiled_gain(measured, parts)
        found["compile.default"] = None if compiled is None else compiled.expected
        if isinstance(work, KernelWork) or window_parts(measured) is not None:
            found.update({remedy: _optimizer(measured, parts, remedy) for remedy in COSTS})
    return {name: min(HIGHEST, max(1.0, gain)) for name, gain in found.items() if gain is not None}


def _waiting_kernels(measured: Measurements) -> float | None:
    """What kernels of threads that wait for each other take beyond the nearer roof; None without such."""
    under = roofs(measured)
    if not isinstance(under, Roofs) or not is_oversubscribed(measured):
        return None
    waiting = [one for one in under.ops if one.regime == "overhead"]
    return under.kernels * sum(one.share * (1 - (one.roof_ns or 0.0) / one.work.kernel_ns) for one in waiting)


def more_threads(measured: Measurements) -> tuple[int, float] | None:
    """Threads that kernels could have where CPUs are free, and what of the step these would save at best."""
    threads, cores, traced = measured.facts and measured.facts.threads, measured.cores, measured.traced
    known = [each for each in measured.host if each.foreign_cores is not None]
    used = median([(each.cpu_share or 0.0) + (each.foreign_cores or 0.0) for each in known])
    parts, work = step_parts(measured), traced.work if traced is not None else []
    if measured.on_device or not (threads and cores and used and work and parts and parts.kernels):
        return None
    count = threads + round(cores - max(used, threads))
    large = [each.kernel_ns for each in work if each.kernel_ns >= thresholds.LONG_CALL_NS * each.count]
    share = sum(parts.kernels.values()) * sum(large) / max(1.0, sum(each.kernel_ns for each in work))
    return None if count <= threads else (count, share * (1 - threads / count))


def implementation(measured: Measurements) -> str | None:
    """How the optimizer runs now, by its operators: a remedy's name, or "each tensor"."""
    window = window_parts(measured) and measured.profile
    seen = window.by_op if window else measured.traced.by_op if measured.traced else []
    for name, marks in MARKS.items():
        if any(mark in entry.op for entry in seen for mark in marks):
            return name
    return "each tensor" if seen else None


def optimizer_share(measured: Measurements, parts: StepParts) -> float | None:
    """The optimizer's part of the step: by its clock, or at least, by the stacks, where it has none."""
    if window_parts(measured) is None:
        return parts.phase.get("optimizer")
    return standing_at_least(measured, lambda place: place.samples * (place.phase == "optimizer"))


def _optimizer(measured: Measurements, parts: StepParts, remedy: str) -> float | None:
    anatomy, traced, now = measured.anatomy, measured.traced, implementation(measured)
    # What is dispatch today is not known of a compiled job: none of it goes, and each call costs the most.
    # Nor where kernels take at least a part of a phase: then all of it counts as theirs.
    profiled, share = window_parts(measured) is not None, optimizer_share(measured, parts)
    idle, most_ns = 0.0 if profiled else parts.idle("optimizer") or 0.0, thresholds.DISPATCH_NS * profiled
    if anatomy is None or traced is None or share is None or not anatomy.parameter_tensors:
        return None
    if now is None or now in (remedy, "optimizer.fused"):
        return None
    # The model is of normal numbers: how long a fused update takes on denormal ones isn't known.
    if any(one.name == "denormals" and one.value >= thresholds.EXCLUDED_AT for one in measured.settings):
        return None
    op_cost_ns = float(most_ns) or positive(traced.op_cost_ns)
    kinds = [_kind(name, anatomy.state_bytes) for name in anatomy.optimizers]
    known = [COSTS[remedy][kind] for kind in kinds if kind is not None]
    if op_cost_ns is None or len(known) != len(kinds) or not known:
        return None
    now_ns = share * parts.step_ns
    # Several optimizers share the tensors: the dearest of their kinds stands for all.
    then_ns = max(
        cost.step_ns(
            tensors=anatomy.parameter_tensors, kernel_ns=now_ns - idle * parts.step_ns, op_cost_ns=op_cost_ns
        )
        for cost in known
    )
    # The few steps that are sampled may miss the long ones, as those that save.
    return _factor(max(parts.step_ns, step_stats(measured.step_ns).mean or 0), now_ns - then_ns)


def _kind(optimizer: str, state_bytes: int | None) -> str | None:
    if optimizer in ("Adam", "AdamW"):
        return "Adam"
    if optimizer == "SGD":
        return "plain SGD" if state_bytes == 0 else "SGD"
    return None


def _workers(measured: Measurements, parts: StepParts) -> float | None:
    """Loading spread over all CPUs, down to what the rest of a step takes, or all of the work on all CPUs.

    Each thread of a kernel is work. On one CPU workers take from training what they give, but for time in
    which loading waits for others. How many of those waits may go on at once, what they wait for has to say.
    """
    anatomy, cores = measured.anatomy, measured.cores
    wait = parts.phase.get("data_wait")
    if anatomy is None or anatomy.loader_workers is None or not cores or wait is None:
        return None
    if cores == 1 or loading_sleeps(measured):
        return None
    rest = 1 - wait
    now = anatomy.loader_workers
    # With workers a starved step lasts as long as one worker's batch divided by their number.
    loading = wait if now == 0 else float(now)
    if now >= cores or workers_keep_up(measured):
        return 1.0
    shared = (
        0 if measured.on_device or measured.facts is None else min(cores, measured.facts.threads or 1) - 1
    )
    kernels = sum((parts.kernels or {}).values())
    return _factor(1.0, 1.0 - max(rest, (loading + rest + shared * kernels) / (cores * ALL_BUSY)))


def _larger_batch(measured: Measurements) -> float | None:
    """Samples per second at twice the batch, by the cautious end of the interval."""
    fit = fit_batch(measured.probe)
    if not isinstance(fit, BatchFit) or not fit.probe.ratio_2x_interval:
        return None
    slowest = positive(max(fit.probe.ratio_2x_interval))
    return None if slowest is None else 2 / slowest


def _without(share: float | None) -> float | None:
    """The factor if all of a share went away."""
    return None if share is None else _factor(1.0, share)


def _factor(step: float, removed: float) -> float:
    left = step - max(0.0, removed)
    return step / left if left > step / HIGHEST else HIGHEST
