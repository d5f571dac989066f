"""Signal `collective_wait`: what gradients' collectives take beyond the backward that hides them."""

from __future__ import annotations

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.figures import duration, median, of_one, positive, unit_share
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.reading import Reading, abstention
from autobrrr.records import Regime

NAME = "collective_wait"
UNIT = "share of step"


def collective_wait(measured: Measurements) -> Reading:
    """Speaks for communication at half of the step, against it at a quarter."""
    waits = measured.collectives
    if waits is None:
        return abstention(
            NAME, UNIT, "no collectives were timed: one process, or not DistributedDataParallel"
        )
    if waits.status != "ok":
        return abstention(NAME, UNIT, waits.why or "it gave no reason")
    share = exposed_share(measured)
    if share is None:
        return abstention(NAME, UNIT, f"{len(waits.step_ns)} of {thresholds.COLLECTIVE_STEPS} steps timed")
    says: Regime | None = "communication" if share >= thresholds.NAMED_AT else None
    return Reading(
        signal=NAME,
        value=share,
        unit=UNIT,
        note=(
            f"collectives take {duration(median(waits.exposed_ns) or 0.0)} beyond the backward, "
            f"{of_one(share)} of the step"
        ),
        says=says,
        against=("communication",) if share <= thresholds.EXCLUDED_AT else (),
        firm=share >= thresholds.NAMED_AT + 0.05,
    )


def exposed_share(measured: Measurements) -> float | None:
    """Exposed collectives, of the same steps; None where too few were timed."""
    waits = measured.collectives
    if waits is None or waits.status != "ok" or len(waits.step_ns) < thresholds.COLLECTIVE_STEPS:
        return None
    step_ns, exposed_ns = positive(median(waits.step_ns)), median(waits.exposed_ns)
    if step_ns is None or exposed_ns is None or exposed_ns < 0:
        return None
    return unit_share(min(1.0, exposed_ns / step_ns))
