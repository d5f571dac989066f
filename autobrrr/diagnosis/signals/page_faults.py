"""Signal `page_faults`: minor page faults of a step, times what one costs on this machine.

An allocator that gives large tensors back to the kernel after each step has them faulted in anew in
the next one. It names nothing alone: `traffic` adds it to the bytes that are moved.
"""

from __future__ import annotations

from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.robust_stats import duration, of_one, positive, unit_share
from autobrrr.diagnosis.signal_reading import Reading, abstention

NAME = "page_faults"
UNIT = "share of step"
LOADING_AT = 0.1  # of the step: from here on the faults may be those of the loader


def page_faults(measured: Measurements) -> Reading:
    """Says how much of the step goes into them."""
    sampled = measured.phases
    if sampled is None or sampled.minor_faults is None:
        return abstention(NAME, UNIT, "page faults were not counted")
    share = unit_share(_share(measured))
    if share is None:
        return abstention(NAME, UNIT, "what a page fault takes here was not measured")
    cost_ns = duration(measured.fault_ns or 0.0)
    return Reading(
        signal=NAME,
        value=share,
        unit=UNIT,
        note=f"{sampled.minor_faults:.0f} page faults a step at {cost_ns} each take {of_one(share)} of it",
    )


def fault_share(measured: Measurements) -> float | None:
    """Share of the step spent on page faults of kernels; None where the loader may have made them."""
    sampled = measured.phases
    if sampled is None or positive(sampled.step_ns) is None:
        return None
    if (sampled.mean.data_wait or 0) > LOADING_AT * sampled.step_ns:
        return None
    return unit_share(_share(measured))


def _share(measured: Measurements) -> float | None:
    sampled, cost_ns = measured.phases, positive(measured.fault_ns)
    if sampled is None or sampled.minor_faults is None or cost_ns is None:
        return None
    step_ns = positive(sampled.step_ns)
    return None if step_ns is None or sampled.minor_faults < 0 else sampled.minor_faults * cost_ns / step_ns
