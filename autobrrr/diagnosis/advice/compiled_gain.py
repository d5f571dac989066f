"""What compiling the model would leave of the step: an estimate from the traced steps.

In: the operators of forward and backward with their kernel time. Out: a factor on speed. Dispatch: every
operator but matrix products is gone, and one call of a graph comes in; what operators don't explain of
the time without kernels is code of the job's own, and stays. Kernels: those that are no
matrix products are fused, and move their data a few times less often. Until the job's own calls have been
compiled and timed the estimate stands under a prior: what scripts got of the gain that was estimated.
"""

from __future__ import annotations

from dataclasses import dataclass

from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.exposed_waits import exposed_by_phase
from autobrrr.diagnosis.models.sampled_frames import is_loading, standing_at_least
from autobrrr.diagnosis.models.shares import StepParts
from autobrrr.diagnosis.models.traced_kernels import is_compute
from autobrrr.diagnosis.robust_stats import positive

PHASES = ("forward", "backward")
GRAPH_CALL = 60.0  # operators' worth of dispatch: guards, the autograd node, the wrapper around it
EACH_PRODUCT = 1.0  # a product is called from the compiled code as from Python
DISPATCH_MOST = 2.0  # an operator's calibrated cost, with the Python of its module around it
FUSED_LEFT = 0.45  # of the kernel time of everything else; measured in benchmarks/verdict/predicted_gain.py


# Seven public CPU scripts for which 1.16, 1.45, 1.06, 1.59, 1.72, 1.27 and 1.08 were estimated got 0.52,
# 1.02, 0.71, 0.77, 1.59, 1.13 and 1.10: the geometric mean of the ratios, and the 95 % interval of the next.
PRIOR = 0.70
PRIOR_INTERVAL = (0.31, 1.62)
HIGHEST = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledGain:
    """The parts of the estimate, as shares of the step."""

    dispatch: float  # of forward and backward, that goes
    traffic: float  # kernel time of operators that are fused, that goes

    @property
    def removed(self) -> float:
        return self.dispatch + self.traffic

    @property
    def estimate(self) -> float:
        """The factor on speed if all of it went and nothing came."""
        return 1 / max(1 / HIGHEST, 1 - self.removed)

    @property
    def expected(self) -> float:
        """The factor under the prior."""
        return PRIOR * self.estimate

    @property
    def interval(self) -> tuple[float, float]:
        """What the factor may be."""
        low, high = PRIOR_INTERVAL
        return low * self.estimate, high * self.estimate


def compiled_gain(measured: Measurements, parts: StepParts) -> CompiledGain | None:
    """None where operators were not traced one by one, or something is compiled already."""
    traced = measured.traced
    idle = [parts.idle(phase) for phase in PHASES]
    op_cost_ns = positive(traced.op_cost_ns) if traced is not None else None
    if traced is None or op_cost_ns is None or not traced.work or parts.kernels is None:
        return None
    if measured.compiled or any(each is None for each in idle):
        return None
    inside = [one for one in traced.work if one.phase in PHASES]
    products = sum(one.count for one in inside if is_compute(one.op))
    kernel_ns = sum(one.kernel_ns for one in inside)
    other_ns = sum(one.kernel_ns for one in inside if not is_compute(one.op))
    kernels = sum(parts.kernels.get(phase, 0.0) for phase in PHASES)
    fused = kernels * other_ns / kernel_ns if kernel_ns > 0 else 0.0
    left = (GRAPH_CALL + EACH_PRODUCT * products) * op_cost_ns / parts.step_ns
    operators = sum(traced.operations_by_phase.get(phase) or 0.0 for phase in PHASES)
    explained = DISPATCH_MOST * operators * op_cost_ns / parts.step_ns if operators else 1.0
    waits = sum(exposed_by_phase(measured).get(phase, 0.0) for phase in PHASES)  # for other ranks
    dispatch = min(explained, max(0.0, sum(each for each in idle if each is not None) - waits))
    model = _of_model(measured, parts)
    return CompiledGain(dispatch=model * max(0.0, dispatch - left), traffic=model * (1 - FUSED_LEFT) * fused)


def _of_model(measured: Measurements, parts: StepParts) -> float:
    """The model's part of forward: to the clock, what comes before backward, as a loss, is forward too."""
    around = standing_at_least(measured, lambda at: at.samples * (at.phase == "other" and not is_loading(at)))
    inside = standing_at_least(measured, lambda at: at.samples * (at.phase == "forward"))
    if around is None or inside is None:
        return 1.0
    outside = max(0.0, around - parts.phase.get("other", 0.0))
    return max(0.0, inside) / max(0.01, inside + outside) if outside else 1.0
