"""What a session has measured of a job so far: the one thing that signals and the judge read.

The sidecar fills it from the ring, the agent's events and /proc, as often as it wants a verdict;
nothing here changes afterwards. `None` is "not measured (yet)".
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from autobrrr.records import (
    AgentCost,
    Anatomy,
    CollectiveWaits,
    DeviceAllocator,
    FrameSamples,
    GpuSample,
    HostSample,
    HostSlack,
    JobFacts,
    Phases,
    ProfilerWindow,
    SettingFact,
    ShadowProbe,
    StepStats,
    TracedSteps,
)
from autobrrr.roofline.quick_peaks import MeasuredPeaks

T = TypeVar("T")
R = TypeVar("R")
Durations = NDArray[np.int64]
Probing = Literal["on", "off"]  # off: `--no-probe`

PHASE_NAMES = ("data_wait", "forward", "backward", "optimizer")
NO_STEPS: Durations = np.empty(0, dtype=np.int64)
MOSTLY = 0.9  # of the sampled steps in which a phase was measured
NOT_SEEN: NDArray[np.bool_] = np.empty(0, dtype=np.bool_)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseFigures:
    """Phases over the sampled steps.

    `mean` keeps rare long waits, which belong to the step; `error` is the standard error of each
    mean. `other` is what the measured phases leave of the step.
    """

    steps: int
    step_ns: int  # mean of the same steps
    mean: Phases
    error: Phases
    batch: int | None = None  # median of the batch sizes seen
    minor_faults: float | None = None  # of the training thread, mean per step
    garbage_ns: float | None = None  # in Python's garbage collector, mean per step
    backwards: int | None = None  # outermost backward calls in a step, median


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Everything a verdict may rest on."""

    pid: int  # as the user sees it: commands in a verdict name it
    step_ns: Durations = field(default_factory=lambda: NO_STEPS)  # representative steps, oldest first
    seen: int = 0  # steps since attach, representative or not
    ahead: NDArray[np.bool_] = field(default_factory=lambda: NOT_SEEN)  # of stamped steps: the host by a step
    evaluated: tuple[tuple[int, int], ...] = ()  # steps with an evaluation, meanwhile: number, duration
    phases: PhaseFigures | None = None
    facts: JobFacts | None = None
    anatomy: Anatomy | None = None
    traced: TracedSteps | None = None
    probe: ShadowProbe | None = None
    sweep: ShadowProbe | None = None
    collectives: CollectiveWaits | None = None
    frames: FrameSamples | None = None
    profile: ProfilerWindow | None = None
    slack: HostSlack | None = None
    host: tuple[HostSample, ...] = ()  # of the time that the phases are of, oldest first
    held: tuple[tuple[int, int], ...] = ()  # on the same clock: when, the job's resident bytes
    measured_ns: int = 0  # on the same clock: when our measuring last grew the job's memory
    gpu: tuple[GpuSample, ...] = ()  # the same of its GPU; none is added while a tuning measures
    allocator: DeviceAllocator | None = None  # of its device
    settings: tuple[SettingFact, ...] = ()  # that cost time, as the job has them
    cost: AgentCost | None = None
    readonly: bool = False  # no traced steps, no probe
    outside: bool = False  # no code in the target at all
    probing: Probing = "on"
    cores: int | None = None  # CPUs that the job may run on
    elapsed_ns: int = 0  # since attach
    peaks: MeasuredPeaks | None = None  # of this machine, at the job's number of threads
    bf16: bool | None = None  # the processor multiplies bfloat16 by itself
    fault_ns: float | None = None  # what one minor page fault costs on this machine

    @property
    def compiled(self) -> bool:
        """The job runs compiled code of its own, as far as is known."""
        return any(seen is not None and seen.compiled for seen in (self.facts, self.anatomy))

    @property
    def on_device(self) -> bool:
        """A device computes while the host goes ahead: a line may take long because it waits for that."""
        return self.facts is not None and self.facts.is_asynchronous


def once(derive: Callable[[T], R]) -> Callable[[T], R]:
    """What is derived of one thing is kept until it is asked of another: a judgement derives it once.

    Nothing that is measured changes afterwards, so that being the same thing is enough.
    """
    kept: list[tuple[T, R]] = []

    @functools.wraps(derive)
    def derived(of: T) -> R:
        for known, found in kept[-1:]:
            if known is of:
                return found
        result = derive(of)
        kept[:] = [(of, result)]
        return result

    return derived


def phase_figures(step_ns: Durations, columns: Mapping[str, Durations]) -> PhaseFigures | None:
    """Means and errors of the sampled steps.

    Args:
        step_ns: Durations of the sampled steps, `end_ns - start_ns`, shape [steps].
        columns: Fields of `ring_layout.SAMPLED_FIELDS` for the same steps, shape [steps] each; a phase
            that is absent, or -1 in more than a few steps, is not measured; those few are left out.

    Returns:
        None where there is no step.
    """
    if len(step_ns) == 0:
        return None
    found = {name: columns.get(f"{name}_ns", NO_STEPS) for name in PHASE_NAMES}
    mostly = {
        name: column.astype(np.float64)
        for name, column in found.items()
        if len(column) == len(step_ns) and np.mean(column >= 0) >= MOSTLY
    }
    measured: dict[str, NDArray[np.float64]] = {}
    if mostly:
        whole = np.all(np.stack(list(mostly.values())) >= 0, axis=0)  # each new model's first has no forward
        step_ns, measured = step_ns[whole], {name: column[whole] for name, column in mostly.items()}
        measured["other"] = np.maximum(step_ns - np.sum(np.stack(list(measured.values())), axis=0), 0.0)
    steps = len(step_ns)
    batches, faults, garbage, backwards = (
        columns.get(name, NO_STEPS)[columns.get(name, NO_STEPS) >= least]
        for name, least in (("samples", 1), ("minor_faults", 0), ("garbage_ns", 0), ("backwards", 1))
    )
    return PhaseFigures(
        steps=steps,
        step_ns=int(step_ns.mean()),
        mean=Phases(**{name: int(column.mean()) for name, column in measured.items()}),
        error=Phases(**{name: _standard_error_ns(column) for name, column in measured.items()}),
        batch=int(np.median(batches)) if len(batches) else None,
        minor_faults=float(faults.mean()) if len(faults) else None,
        garbage_ns=float(garbage.mean()) if len(garbage) else None,
        backwards=int(np.median(backwards)) if len(backwards) else None,
    )


def step_stats(step_ns: Durations) -> StepStats:
    """Count, mean, median and p99 of step durations."""
    if len(step_ns) == 0:
        return StepStats(count=0, mean=None, median=None, p99=None)
    return StepStats(
        count=len(step_ns),
        mean=int(step_ns.mean()),
        median=int(np.median(step_ns)),
        p99=int(np.percentile(step_ns, 99)),
    )


def _standard_error_ns(column: NDArray[np.float64]) -> int | None:
    if len(column) < 2:
        return None
    return int(column.std(ddof=1) / np.sqrt(len(column)))
