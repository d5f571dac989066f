"""Where the step goes: phases, and inside them kernel work, put together to shares of the whole.

overhead: forward, backward and optimizer less their kernels (and less pauses between two root calls, which
are the user's own code, as an environment's step is), with calls too short to be kernels where the step
doesn't grow with the batch, and with what stacks show of torch's and a framework's code between them.
input: waiting for data, or making it in a generator that the loop reads from.
host: the rest of the step less its kernels.
compute, memory, underfilled: the kernels, by operator class and by how near they come to the roofs.
What no measurement separates is left in `other`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements, once
from autobrrr.diagnosis.models.batch_fit import BatchFit, fit_batch
from autobrrr.diagnosis.models.exposed_waits import exposed_by_phase, exposed_share
from autobrrr.diagnosis.models.roofs import Roofs, by_regime, roofs
from autobrrr.diagnosis.models.sampled_frames import feed_standing, in_library, standing_at_least
from autobrrr.diagnosis.models.traced_kernels import KernelWork, kernel_work
from autobrrr.diagnosis.models.window_parts import PRODUCTS, window_parts
from autobrrr.diagnosis.robust_stats import positive, share_of, unit_share
from autobrrr.records import Phases, Shares

MODEL_PHASES = ("forward", "backward", "optimizer")
PHASES = ("data_wait", *MODEL_PHASES, "other")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParts:
    """One step, divided. Shares are of `step_ns`; `kernels` is None without a trusted trace."""

    step_ns: float
    steps: int  # steps that the phases were measured in
    phase: Mapping[str, float]
    kernels: Mapping[str, float] | None  # kernel work inside each phase
    at_least: bool = False  # it may be more

    def idle(self, phase: str) -> float | None:
        """The part of a phase in which no kernel works; None where that is not known."""
        if self.kernels is None or self.at_least or phase not in self.phase:
            return None
        return max(0.0, self.phase[phase] - self.kernels.get(phase, 0.0))


@once
def step_parts(measured: Measurements) -> StepParts | None:
    """The step, divided by phase and kernel work; None where phases were not measured."""
    work = kernel_work(measured.traced)
    trusted = work if isinstance(work, KernelWork) else None
    steps, spent = _phase_times(measured, trusted)
    step_ns = positive(sum(spent.values()))
    if step_ns is None:
        return None
    phase = {name: ns / step_ns for name, ns in spent.items()}
    kernels = None
    if trusted is not None and all(name in trusted.by_phase for name in phase if phase[name] > 0.01):
        kernels = {name: share * trusted.by_phase.get(name, 0.0) for name, share in phase.items()}
    at_least = trusted is not None and trusted.at_least
    if kernels is not None and "forward" in phase and "other" in phase:
        between = _between(measured, step_ns, phase["forward"] - kernels["forward"])
        phase["forward"] -= between
        phase["other"] += between
    return StepParts(step_ns=step_ns, steps=steps, phase=phase, kernels=kernels, at_least=at_least)


def _between(measured: Measurements, step_ns: float, most: float) -> float:
    """Of forward, what is the user's own code between two root calls: no operator runs in it."""
    pauses_ns = None if measured.traced is None else positive(measured.traced.between_ns)
    return 0.0 if pauses_ns is None else max(0.0, min(most, pauses_ns / step_ns))


def step_shares(measured: Measurements) -> Shares:
    """The shares of the whole step; those that are measured sum to one with `other`."""
    parts = step_parts(measured)
    if parts is None or measured.outside:
        return Shares()
    found: dict[str, float] = {}
    if "data_wait" in parts.phase:
        loading = parts.phase["data_wait"] - exposed_by_phase(measured).get("data_wait", 0.0)
        found["input"] = max(0.0, loading) + fed_share(measured, parts)
    waits = exposed_share(measured)
    if waits is not None:
        found["communication"] = waits
    overhead, host = overhead_share(measured, parts), host_share(measured, parts)
    window = window_parts(measured)
    if window is not None:
        host = window.own
        overhead = max(0.0, window.host - (host or 0.0))
        found["compute"] = window.kernels.get(PRODUCTS, 0.0)
    if overhead is not None:
        found["overhead"] = overhead
    if host is not None:
        found["host"] = host
    kernels = _kernel_shares(measured, parts)
    stalled = kernels.pop("overhead", 0.0)
    found.update(kernels)
    if stalled:
        found["overhead"] = found.get("overhead", 0.0) + stalled
    short = short_dispatch(measured, parts)
    if short:
        found["overhead"] = found.get("overhead", 0.0) + short
        found["underfilled"] -= short
    total = sum(found.values())
    if total > 1:
        found = {name: share / total for name, share in found.items()}
    return Shares(**found, other=max(0.0, 1 - sum(found.values())))


def overhead_share(measured: Measurements, parts: StepParts) -> float | None:
    """Forward, backward and optimizer less kernels, and the dispatch of operators outside them."""
    idle = [parts.idle(name) for name in MODEL_PHASES]
    known = [share for share in idle if share is not None]
    if len(known) < len(MODEL_PHASES):
        return None  # what was not measured lies in `other`, and can't be told from the user's code
    # No operator runs while the thread waits for other ranks.
    waits = sum(exposed_by_phase(measured).get(name, 0.0) for name in MODEL_PHASES)
    outside = _dispatch_outside(measured, parts) + library_share(measured, parts)
    return unit_share(max(0.0, sum(known) + outside - waits))


def host_share(measured: Measurements, parts: StepParts) -> float | None:
    """Time outside loading, forward, backward and optimizer in which no operator or collective runs."""
    between = _between_phases(measured, parts)
    if between is None:
        return None
    return between - fed_share(measured, parts) - library_share(measured, parts)


def fed_share(measured: Measurements, parts: StepParts) -> float:
    """The part of it that is loading without a DataLoader: by the clock and by the stacks, the lesser."""
    window = window_parts(measured)
    if window is not None:
        return window.fed
    return min(_between_phases(measured, parts) or 0.0, feed_standing(measured))


def library_share(measured: Measurements, parts: StepParts) -> float:
    """The part of it that is torch's or a framework's code, as Hugging Face's Trainer is: the least.

    Stacks can't tell which of them lie between the phases: all that the phases hold, and all that works or
    waits between them, is taken to be theirs.
    """
    between, standing = _between_phases(measured, parts), standing_at_least(measured, in_library)
    if between is None or standing is None:
        return 0.0
    inside = sum(parts.phase[name] for name in MODEL_PHASES)
    least = standing - inside - (parts.phase["other"] - between)
    return max(0.0, min(least, between - fed_share(measured, parts)))


def _between_phases(measured: Measurements, parts: StepParts) -> float | None:
    idle = parts.idle("other")
    if idle is None or not all(name in parts.phase for name in MODEL_PHASES):
        return None
    waits = exposed_by_phase(measured).get("other", 0.0)
    return max(0.0, idle - _dispatch_outside(measured, parts) - waits)


def short_calls(measured: Measurements, parts: StepParts) -> float:
    """Share of the step that counts as underfilled kernels, in calls so short that it may be dispatch."""
    under = roofs(measured)
    unclear = under.unclear if isinstance(under, Roofs) else 0.0
    return unclear * _kernel_shares(measured, parts).get("underfilled", 0.0)


def short_dispatch(measured: Measurements, parts: StepParts) -> float:
    """The part of it that is dispatch: all where the step doesn't grow with the batch, nothing elsewhere.

    Kernels that move tensors may be fixed too, as weights are: what is fixed must be half of the step
    without them, and the host's own time more than all other kernels.
    """
    fit, short = fit_batch(measured.probe), short_calls(measured, parts)
    if not short or not isinstance(fit, BatchFit) or fit.share < thresholds.NAMED_AT:
        return 0.0
    kernels = _kernel_shares(measured, parts)
    others = sum(kernels.values()) - short
    own = (overhead_share(measured, parts) or 0.0) + (host_share(measured, parts) or 0.0)
    flat = fit.share - kernels.get("memory", 0.0) >= thresholds.NAMED_AT
    return short if flat and own > others else 0.0


def shown_phases(measured: Measurements) -> Phases:
    """The phases as they leave the program."""
    if measured.phases is not None:
        return measured.phases.mean
    work = kernel_work(measured.traced)
    if isinstance(work, KernelWork):
        return Phases(
            **{name: int(ns) for name, ns in work.plain_by_phase_ns.items() if name in PHASES and ns < inf}
        )
    return Phases()


def _phase_times(measured: Measurements, work: KernelWork | None) -> tuple[int, dict[str, float]]:
    sampled = measured.phases
    if sampled is not None and (sampled.steps >= thresholds.SAMPLED_STEPS or work is None):
        return sampled.steps, _present({name: getattr(sampled.mean, name) for name in PHASES})
    if work is not None:
        return work.steps, _present({name: work.plain_by_phase_ns.get(name) for name in PHASES})
    return 0, {}


def _present(times_ns: Mapping[str, float | None]) -> dict[str, float]:
    return {name: float(max(0.0, ns)) for name, ns in times_ns.items() if ns is not None}


def _dispatch_outside(measured: Measurements, parts: StepParts) -> float:
    """What dispatching the operators of the phase `other` costs: overhead, not the user's code."""
    traced, idle = measured.traced, parts.idle("other")
    if traced is None or idle is None:
        return 0.0
    operations = positive(traced.operations_by_phase.get("other"))
    cost_ns = positive(traced.op_cost_ns)
    if operations is None or cost_ns is None:
        return 0.0
    return min(idle, operations * cost_ns / parts.step_ns)


def _kernel_shares(measured: Measurements, parts: StepParts) -> dict[str, float]:
    """Kernels outside the loader, by operator class; by shapes and roofs where these are known."""
    work = kernel_work(measured.traced)
    if parts.kernels is None or not isinstance(work, KernelWork):
        return {}
    loading = parts.kernels.get("data_wait", 0.0)
    kernels = sum(parts.kernels.values()) - loading
    under = roofs(measured)
    if isinstance(under, Roofs) and under.kernels > 0:
        return {name: share * kernels / under.kernels for name, share in by_regime(under).items()}
    if work.compute is None:
        return {}
    # The table of operators does not tell phases apart: where the loader's own kernels weigh, the
    # split would be theirs.
    if loading > 0.25 * (kernels + loading):
        return {}
    return {"compute": kernels * work.compute, "memory": kernels * (1 - work.compute)}


def kernels_between(measured: Measurements) -> bool:
    """Whether most of the kernels run between the phases: they are not the model's."""
    parts = step_parts(measured)
    kernels = {} if parts is None or parts.kernels is None else parts.kernels
    return kernels.get("other", 0.0) >= thresholds.NAMED_AT * max(thresholds.LIMIT_AT, sum(kernels.values()))


def garbage_share(measured: Measurements) -> float | None:
    """Share of the sampled steps spent in Python's garbage collector."""
    sampled = measured.phases
    return None if sampled is None else share_of(sampled.garbage_ns, sampled.step_ns)


def worth_freezing(measured: Measurements) -> float | None:
    """The same where it is enough for `gc.*` to be worth a trial; else None."""
    share = garbage_share(measured)
    return None if share is None or share < thresholds.GARBAGE_AT else share
