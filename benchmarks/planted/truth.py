"""What is true of a job, from its own stopwatch: no code of the product, no operator is looked into.

The sections give loading and the user's own code. The same script with hollow data (same operators,
next to nothing in the tensors) gives what Python and dispatch cost; what hollow data saves is kernel
work. Kernel work is compute or memory by the roof that the job's formulas come near, underfilled
where they come near neither; page faults, found by a run with a calmer malloc, are memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.planted.case import Case
from benchmarks.planted.ceilings import Ceilings

NAMED_AT = 0.5
LEAD = 0.15
NEAR_ROOF = 0.5
FAR_FROM_ROOF = 0.3
UNEXPLAINED = 0.25  # more of the step than this between the words: nothing is confirmed
CROWDED_AT = 1.4  # a step that takes so much longer in company was not measured, but its company


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One run of a script with `--clock`; means per step."""

    step_ns: float
    sections_ns: Mapping[str, float]
    minor_faults: float = 0.0
    flops: float = 0.0
    traffic_bytes: float = 0.0
    settled: Mapping[str, float] = field(default_factory=dict)
    steps: int = 0
    warm_steps: int = 0
    median_step_ns: float = 0.0

    def section(self, name: str) -> float:
        return self.sections_ns.get(name, 0.0)

    @property
    def model_ns(self) -> float:
        """The step without loading and the user's own code."""
        return self.step_ns - self.section("input") - self.section("host")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The true shares of a step, and how near its kernels come to the roofs."""

    shares: Mapping[str, float]
    compute_fill: float | None  # FLOPs at the matmul roof, over kernel time
    memory_fill: float | None  # bytes at the bandwidth roof and page faults, over kernel time


def shares(full: Timing, hollow: Timing, calm: Timing | None, roofs: Ceilings) -> Found:
    """Where the step of a job goes, by construction and stopwatch.

    Args:
        full: The job as it is planted.
        hollow: The same operators on next to no data.
        calm: The job as it is planted, under a malloc that never gives memory back.
        roofs: At the job's own number of threads.
    """
    step = full.step_ns
    overhead = min(hollow.model_ns, full.model_ns)
    kernel = full.model_ns - overhead
    found = {
        "input": full.section("input") / step,
        "host": full.section("host") / step,
        "overhead": overhead / step,
    }
    if kernel < 0.02 * step:
        return Found(shares=found, compute_fill=None, memory_fill=None)
    faults_ns = max(0.0, full.step_ns - calm.step_ns) if calm is not None else 0.0
    compute = full.flops / roofs.matmul_flops * 1e9 / kernel
    memory = (full.traffic_bytes / roofs.bytes_per_s * 1e9 + faults_ns) / kernel
    for name, part in _divided(compute, memory, full.settled, kernel).items():
        found[name] = part * kernel / step
    return Found(shares=found, compute_fill=compute, memory_fill=memory)


def _divided(
    compute: float, memory: float, settled: Mapping[str, float], kernel_ns: float
) -> dict[str, float]:
    """Kernel time, divided among compute, memory and underfilled; what is near no word is left out.

    The parts of a mixture were timed alone: kernels beyond them are those of the part that is dispatch.
    """
    timed = {name: settled[f"{name}_ns"] for name in ("compute", "memory") if f"{name}_ns" in settled}
    if timed:
        whole_ns = max(kernel_ns, sum(timed.values()))
        return {name: ns / whole_ns for name, ns in timed.items()}
    if compute < FAR_FROM_ROOF and memory < FAR_FROM_ROOF:
        return {"underfilled": 1.0}
    if compute >= NEAR_ROOF and compute > memory:
        return {"compute": 1.0}
    if memory >= NEAR_ROOF and memory > compute:
        return {"memory": 1.0}
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """Whether the claimed truth stood up to the measurement."""

    holds: bool
    figure: str  # one sentence


def confirm_shares(case: Case, found: Found) -> Confirmation:
    """The claimed regime takes half of the step and leads by 15 points; `mixed`: none does."""
    ranked = sorted(found.shares.items(), key=lambda item: -item[1])
    listed = ", ".join(f"{name} {share:.0%}" for name, share in ranked if share >= 0.03)
    if found.compute_fill is not None and found.memory_fill is not None:
        listed += f"; kernels at {found.compute_fill:.0%} of matmul, {found.memory_fill:.0%} of bandwidth"
    leader, most = ranked[0]
    rest = 1 - sum(found.shares.values())
    ahead = most - max([share for _, share in ranked[1:]] + [rest])
    named = leader if most >= NAMED_AT and ahead >= LEAD else "mixed"
    if rest > UNEXPLAINED:
        named = "not explained"
    return Confirmation(holds=named == case.truth, figure=listed)


def confirm_alone(case: Case, full: Timing, alone: Timing) -> Confirmation:
    """How much the step shrinks once what was planted is taken away."""
    longer = full.step_ns / alone.step_ns
    enough = CROWDED_AT if case.truth == "unknown" else 1 / (1 - NAMED_AT)
    figure = f"{longer:.2f}x the {alone.step_ns / 1e6:.2f} ms of the step without it"
    return Confirmation(holds=longer >= enough, figure=figure)
