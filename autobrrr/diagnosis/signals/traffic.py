"""Signal `traffic`: what moving the step's bytes takes at the measured bandwidth, page faults included.

Bytes come from shapes and the bandwidth from a benchmark of its own: independent of the operators'
clock. Each kernel counts for no more than it took, since caches are faster than memory.
"""

from __future__ import annotations

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.roofs import Roofs, roofs
from autobrrr.diagnosis.robust_stats import of_one, unit_share
from autobrrr.diagnosis.signal_reading import Reading, abstention
from autobrrr.diagnosis.signals.page_faults import fault_share
from autobrrr.records import Regime

NAME = "traffic"
UNIT = "share of step"


def traffic(measured: Measurements) -> Reading:
    """Speaks for memory where it explains half of the kernels that move tensors, and these half a step."""
    found = roofs(measured)
    if not isinstance(found, Roofs):
        return abstention(NAME, UNIT, found)
    if found.peaks is None:
        return abstention(NAME, UNIT, found.why)
    moving = [one for one in found.ops if one.regime == "memory"]
    memory = found.share("memory")
    moved = sum(one.work.bytes or 0.0 for one in moving)
    least_ns = sum(min(one.bytes_ns or 0.0, one.work.kernel_ns) for one in moving)
    at_roof = memory * least_ns / max(1.0, sum(one.work.kernel_ns for one in moving))
    faults = fault_share(measured) or 0.0
    share = unit_share(min(memory, at_roof + faults))
    if share is None:
        return abstention(NAME, UNIT, "the bytes of the step have no usable values")
    least = at_roof * (1 - found.peaks.doubt("triad_bytes_per_s")) + faults
    explained = min(1.0, least / memory) if memory > 0 else 0.0
    says: Regime | None = None
    if memory >= thresholds.NAMED_AT and explained >= thresholds.EXPLAINED_AT:
        says = "memory"
    with_faults = f", page faults {of_one(min(1.0, faults))}" if faults >= 0.01 else ""
    return Reading(
        signal=NAME,
        value=share,
        unit=UNIT,
        note=(
            f"{moved / 1e6:.3g} MB at {found.peaks.triad_bytes_per_s / 1e9:.3g} GB/s take "
            f"{of_one(min(1.0, at_roof))} of the step{with_faults}"
        ),
        says=says,
        firm=explained >= thresholds.EXPLAINED_AT + 0.1,
    )
