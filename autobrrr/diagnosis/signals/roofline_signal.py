"""Signal `roofline`: how much of the kernels' time the nearer of the two roofs explains.

Below 30 % of both, kernels that are short or made of small parts are underfilled: they neither multiply
nor move enough. Calls of a few microseconds are no kernels at all: that time is the operator's own way in
and out. A long call may have a roof of its own, and names nothing.
"""

from __future__ import annotations

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.roofs import RoofedOp, Roofs, is_made_of_parts, roofs
from autobrrr.diagnosis.robust_stats import duration, of_one, unit_share
from autobrrr.diagnosis.signal_reading import Reading, abstention
from autobrrr.records import OpWork, Regime

NAME = "roofline"
UNIT = "share of roof"
LEAST_COVERED = 0.5  # of the kernels' time in operators that have a roof


def roofline(measured: Measurements) -> Reading:
    """Speaks for underfilled where kernels below 30 % of both roofs take half of the step.

    For overhead where they are kernels of threads that wait for each other.
    """
    found = roofs(measured)
    if not isinstance(found, Roofs):
        return abstention(NAME, UNIT, found)
    if found.peaks is None:
        return abstention(NAME, UNIT, found.why)
    under = [one for one in found.ops if one.roof_ns is not None]
    if sum(one.share for one in under) < LEAST_COVERED:
        return abstention(NAME, UNIT, "most kernels have no known peak to compare with")
    reached = unit_share(
        sum(one.roof_ns or 0.0 for one in under) / max(1.0, sum(one.work.kernel_ns for one in under))
    )
    if reached is None:
        return abstention(NAME, UNIT, "the kernels have no usable values")
    stalled = found.share("overhead")
    low = found.share("underfilled") + stalled
    call_ns = _call_ns(found)
    small = found.kernels * sum(one.share for one in _far_below(found) if is_small(one.work))
    says: Regime | None = None
    slow = reached < thresholds.ROOF_LOW and small >= thresholds.NAMED_AT
    if slow and call_ns >= found.short_ns:
        says = "underfilled" if stalled < thresholds.NAMED_AT else "overhead"
    against: tuple[Regime, ...] = ("underfilled",) if reached >= thresholds.NAMED_AT else ()
    return Reading(
        signal=NAME,
        value=reached,
        unit=UNIT,
        note=(
            f"kernels reach {of_one(reached)} of the nearer roof; those below "
            f"{of_one(thresholds.ROOF_LOW)} of both take {of_one(min(1.0, low))} of the step"
            + (f", {duration(call_ns)} a call" if call_ns else "")
        ),
        says=says,
        against=against,
        firm=small >= thresholds.NAMED_AT + 0.05,
    )


def _far_below(found: Roofs) -> list[RoofedOp]:
    return [one for one in found.ops if one.regime in ("underfilled", "overhead")]


def is_small(work: OpWork) -> bool:
    """Whether calls are short, or consist of small parts. A long call may have a lower roof of its own."""
    return is_made_of_parts(work) or work.kernel_ns / max(1.0, work.count) <= thresholds.LONG_CALL_NS


def _call_ns(found: Roofs) -> float:
    """Mean time of one call of what is underfilled."""
    low = [one.work for one in _far_below(found)]
    return sum(work.kernel_ns for work in low) / max(1.0, sum(work.count for work in low)) if low else 0.0
