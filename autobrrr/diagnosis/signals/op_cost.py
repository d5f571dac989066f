"""Signal `op_cost`: operators counted in a step, times what dispatching one takes in this process.

It is the least that they take: Python between operators and the modules' calls are not in it. So a low
value excludes nothing, and a third of the step confirms what another clock says of half.
"""

from __future__ import annotations

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.traced_kernels import KernelWork, busy_while_traced, kernel_work
from autobrrr.diagnosis.robust_stats import duration, median, of_one, positive
from autobrrr.diagnosis.signal_reading import Reading, abstention
from autobrrr.records import Regime

NAME = "op_cost"
UNIT = "share of step"


def op_cost(measured: Measurements) -> Reading:
    """Speaks for overhead where dispatch alone makes a third of the step, firmly from a half on."""
    traced = measured.traced
    if traced is None or traced.status != "ok":
        return abstention(NAME, UNIT, "no step was traced, so operators were not counted")
    operations, cost_ns = positive(median(traced.operations)), positive(traced.op_cost_ns)
    if operations is None or cost_ns is None:
        return abstention(NAME, UNIT, "the time of one operator was not calibrated")
    plain_ns = positive(median(traced.plain_step_ns))
    if plain_ns is None or len(traced.plain_step_ns) < thresholds.TRACED_STEPS:
        return abstention(NAME, UNIT, "too few plain steps")
    busy = busy_while_traced(traced)
    if busy is not None:
        return abstention(NAME, UNIT, busy)
    work = kernel_work(traced)
    if isinstance(work, KernelWork) and work.by_each:  # of the same steps, which the profiler makes longer
        plain_ns = max(plain_ns, operations * sum(traced.traced_step_ns) / max(1, sum(traced.operations)))
    raw = operations * cost_ns / plain_ns
    if raw > 1.5:
        exceeds = f"{operations:.0f} operators x {duration(cost_ns)} exceed the step: calibration is off"
        return abstention(NAME, UNIT, exceeds)
    share = min(1.0, raw)
    says: Regime | None = "overhead" if share >= thresholds.DISPATCH_AT else None
    return Reading(
        signal=NAME,
        value=share,
        unit=UNIT,
        note=f"{operations:.0f} operators x {duration(cost_ns)} of dispatch = {of_one(share)} of the step",
        says=says,
        firm=len(traced.operations) >= thresholds.TRACED_STEPS and share >= thresholds.NAMED_AT,
    )
