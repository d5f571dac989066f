"""Signal `matmul_rate`: FLOP/s of the job's matrix products, as a part of what this machine reaches.

FLOPs come from shapes, the peak from a benchmark at the job's number of threads; where the whole
curve is known, from the square product of the same volume. A long call that was run by itself in the job is
held against that: a convolution or a narrow product reaches what its own kernel can, not what a square
one can.
"""

from __future__ import annotations

from collections.abc import Sequence

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.op_classes import MATMUL
from autobrrr.diagnosis.models.roofs import PEAK_OF, RoofedOp, Roofs, roofs, shape_of_product
from autobrrr.diagnosis.robust_stats import of_one, unit_share
from autobrrr.diagnosis.signal_reading import Reading, abstention
from autobrrr.records import Regime
from autobrrr.roofline.quick_peaks import MeasuredPeaks

NAME = "matmul_rate"
UNIT = "share of peak"
LEAST_SHARE = 0.05  # of the step: rates of rarer products say nothing about it


def matmul_rate(measured: Measurements) -> Reading:
    """Speaks for compute at half of the peak, where products take at least a quarter of the step."""
    found = roofs(measured)
    if not isinstance(found, Roofs):
        return abstention(NAME, UNIT, found)
    if found.peaks is None:
        return abstention(NAME, UNIT, found.why)
    products = [one for one in found.ops if one.kind == MATMUL and one.flops_ns is not None]
    share = found.kernels * sum(one.share for one in products)
    if share < LEAST_SHARE:
        return abstention(NAME, UNIT, f"matrix products take {of_one(share)} of the step")
    spent_ns = sum(one.work.kernel_ns for one in products)
    rate = unit_share(sum(_at_peak_ns(one, found.peaks) for one in products) / spent_ns)
    doubt = found.peaks.doubt("matmul_flops")
    least = unit_share(sum(_at_peak_ns(one, found.peaks, doubt) for one in products) / spent_ns)
    if rate is None or least is None:
        return abstention(NAME, UNIT, "the products have no usable values")
    flops = sum(one.work.flops or 0.0 for one in products)
    says: Regime | None = None
    if share >= thresholds.EXCLUDED_AT and least >= thresholds.NAMED_AT:
        says = "compute"
    reached, peak = flops / spent_ns, found.peaks.matmul_flops / 1e9
    against = (
        f"{of_one(rate)} of what this machine does on such shapes with {found.peaks.threads} "
        f"thread{'s' if found.peaks.threads > 1 else ''} ({peak:.3g} at best{_alone(products)})"
        if reached <= peak
        else f"more than was measured as this machine's peak ({peak:.3g})"
    )
    return Reading(
        signal=NAME,
        value=rate,
        unit=UNIT,
        note=f"matrix products reach {reached:.3g} GFLOP/s, {against}",
        says=says,
        # What is slow alone as well may be a kernel that fits these shapes badly.
        firm=least >= thresholds.NAMED_AT + 0.05 and reached >= thresholds.ROOF_LOW * peak,
    )


def _at_peak_ns(one: RoofedOp, peaks: MeasuredPeaks, doubt: float = 0.0) -> float:
    """What the product takes at the peak for its shape, or by itself; never more than it took.

    The doubt is about the peak, not about calls that were run by themselves in the job.
    """
    own_ns = _own_ns(one)
    if own_ns is not None:
        return min(own_ns, one.work.kernel_ns)
    at_peak_ns, shape = one.flops_ns or 0.0, shape_of_product(one.work)
    if shape is not None and one.work.flops:
        reached = peaks.matmul_flops_at(*shape)
        if reached:
            at_peak_ns = 1e9 * one.work.flops / (PEAK_OF.get(one.work.dtype, 1.0) * reached)
    return min(at_peak_ns, one.work.kernel_ns) * (1 - doubt)


def _alone(products: Sequence[RoofedOp]) -> str:
    """How much of their time is held against the same calls by themselves."""
    spent_ns = sum(one.work.kernel_ns for one in products)
    own = sum(one.work.kernel_ns for one in products if _own_ns(one) is not None) / spent_ns
    return f"; {of_one(own)} of their time against the same calls alone" if own else ""


def _own_ns(one: RoofedOp) -> float | None:
    """What its calls take alone; None below the ridge, where that is no rate of computing."""
    return None if one.regime == "memory" else one.own_ns
