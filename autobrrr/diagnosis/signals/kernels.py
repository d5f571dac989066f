"""What kernels do with their time: by kind, by bytes, by rate, by the roofs, by page faults.

Signal `kernel_time`: the part of the step that kernels of one kind take, by the clock of traced steps.

Matrix products above the ridge of this machine are compute; everything else moves tensors: memory.

Signal `traffic`: what moving the step's bytes takes at the measured bandwidth, page faults included.

Bytes come from shapes and the bandwidth from a separate benchmark: independent of the operators' clock.
Each kernel counts for no more than it took, since caches are faster than memory.

Signal `matmul_rate`: FLOP/s of the job's matrix products, as a share of what this machine can do.

FLOPs come from shapes, the peak from a benchmark at the job's number of threads; where the whole
curve is known, from the square product of the same volume. A long call that was run by itself in the job is
held against that: a convolution or a narrow product reaches what its own kernel can, not what a square
one can.

Signal `roofline`: how much of the kernels' time the nearer of the two roofs explains.

Below 30 % of both, kernels that are short or made of small parts are underfilled: they neither multiply
nor move enough. Calls of a few microseconds are no kernels at all: that time is the operator's own way in
and out. A long call may have a lower roof that nobody measured, so it names nothing.

Signal `page_faults`: minor page faults of a step, times what one costs on this machine.

An allocator that gives large tensors back to the kernel after each step has them faulted in anew in
the next one. It names nothing alone: `traffic` adds it to the bytes that are moved.
"""

from __future__ import annotations

from collections.abc import Sequence

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.op_classes import MATMUL
from autobrrr.diagnosis.models.roofs import (
    PEAK_OF,
    RoofedOp,
    Roofs,
    is_made_of_parts,
    roofs,
    shape_of_product,
)
from autobrrr.diagnosis.models.traced_kernels import KernelWork, kernel_work
from autobrrr.diagnosis.part_names import WORDS
from autobrrr.diagnosis.robust_stats import duration, of_one, positive, unit_share
from autobrrr.diagnosis.signal_reading import STEP, Reading, abstention
from autobrrr.records import OpWork, Regime
from autobrrr.roofline.quick_peaks import MeasuredPeaks

LEAST_SHARE = 0.05  # of the step: rates of rarer products say nothing about it
LEAST_COVERED = 0.5  # of the kernels' time in operators that have a roof
LOADING_AT = 0.1  # of the step: from here on the faults may be those of the loader
SHOWN_KINDS = 3


def kernel_time(measured: Measurements) -> Reading:
    """Speaks for compute or memory at half of the step and twice the other, against either at a quarter."""
    if measured.traced is None and (measured.readonly or measured.outside):
        return abstention("kernel_time", STEP, "a read-only session traces no step")
    found = roofs(measured)
    if not isinstance(found, Roofs):
        return abstention("kernel_time", STEP, found)
    work = kernel_work(measured.traced)
    width = work.spread if isinstance(work, KernelWork) else 1.0
    shares: dict[Regime, float] = {"compute": found.share("compute"), "memory": found.share("memory")}
    leader = max(shares, key=lambda regime: shares[regime])
    share = min(1.0, shares[leader])
    other = min(shares, key=lambda regime: shares[regime])
    rival = shares[other]
    most = rival + found.unread  # of the other kind
    says: Regime | None = None
    if share >= thresholds.NAMED_AT and share >= thresholds.TIMES_THE_OTHER * most:
        says = leader
    against = tuple(one for one, part in shares.items() if part + found.unread <= thresholds.EXCLUDED_AT)
    return Reading(
        signal="kernel_time",
        value=share,
        unit=STEP,
        note=(
            f"{of_one(share)} of a step is {_kinds(found, leader)}"
            + (f", {of_one(rival)} {WORDS[other]}" if rival > thresholds.EXCLUDED_AT else "")
            + (f", {of_one(found.unread)} kernels of unknown shape" if found.unread >= 0.01 else "")
        ),
        says=says,
        against=against,
        firm=share - width / 2 >= thresholds.NAMED_AT,
    )


def _kinds(found: Roofs, regime: Regime) -> str:
    kinds = [f"{kind} {of_one(share)}" for kind, share in found.by_kind(regime).items() if share >= 0.005]
    return WORDS[regime] + (f" ({', '.join(kinds[:SHOWN_KINDS])})" if len(kinds) > 1 else "")


def traffic(measured: Measurements) -> Reading:
    """Speaks for memory where it explains half of the kernels that move tensors, and these half a step."""
    found = roofs(measured)
    if not isinstance(found, Roofs):
        return abstention("traffic", STEP, found)
    if found.peaks is None:
        return abstention("traffic", STEP, found.why)
    moving = [one for one in found.ops if one.regime == "memory"]
    memory = found.share("memory")
    moved = sum(one.work.bytes or 0.0 for one in moving)
    least_ns = sum(min(one.bytes_ns or 0.0, one.work.kernel_ns) for one in moving)
    at_roof = memory * least_ns / max(1.0, sum(one.work.kernel_ns for one in moving))
    faults = fault_share(measured) or 0.0
    share = unit_share(min(memory, at_roof + faults))
    if share is None:
        return abstention("traffic", STEP, "the bytes of the step have no usable values")
    least = at_roof * (1 - found.peaks.doubt("triad_bytes_per_s")) + faults
    explained = min(1.0, least / memory) if memory > 0 else 0.0
    says: Regime | None = None
    if memory >= thresholds.NAMED_AT and explained >= thresholds.EXPLAINED_AT:
        says = "memory"
    with_faults = f", page faults {of_one(min(1.0, faults))}" if faults >= 0.01 else ""
    return Reading(
        signal="traffic",
        value=share,
        unit=STEP,
        note=(
            f"{moved / 1e6:.3g} MB at {found.peaks.triad_bytes_per_s / 1e9:.3g} GB/s take "
            f"{of_one(min(1.0, at_roof))} of the step{with_faults}"
        ),
        says=says,
        firm=explained >= thresholds.EXPLAINED_AT + 0.1,
    )


def matmul_rate(measured: Measurements) -> Reading:
    """Speaks for compute at half of the peak, where products take at least a quarter of the step."""
    found = roofs(measured)
    if not isinstance(found, Roofs):
        return abstention("matmul_rate", "share of peak", found)
    if found.peaks is None:
        return abstention("matmul_rate", "share of peak", found.why)
    products = [one for one in found.ops if one.kind == MATMUL and one.flops_ns is not None]
    share = found.kernels * sum(one.share for one in products)
    if share < LEAST_SHARE:
        return abstention("matmul_rate", "share of peak", f"matrix products take {of_one(share)} of the step")
    spent_ns = sum(one.work.kernel_ns for one in products)
    rate = unit_share(sum(_at_peak_ns(one, found.peaks) for one in products) / spent_ns)
    doubt = found.peaks.doubt("matmul_flops")
    least = unit_share(sum(_at_peak_ns(one, found.peaks, doubt) for one in products) / spent_ns)
    if rate is None or least is None:
        return abstention("matmul_rate", "share of peak", "the products have no usable values")
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
        signal="matmul_rate",
        value=rate,
        unit="share of peak",
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
    """Time of its calls when they run alone; None below the ridge, where they wait for memory instead."""
    return None if one.regime == "memory" else one.own_ns


def roofline(measured: Measurements) -> Reading:
    """Speaks for underfilled where kernels below 30 % of both roofs take half of the step.

    For overhead where they are kernels of threads that wait for each other.
    """
    found = roofs(measured)
    if not isinstance(found, Roofs):
        return abstention("roofline", "share of roof", found)
    if found.peaks is None:
        return abstention("roofline", "share of roof", found.why)
    under = [one for one in found.ops if one.roof_ns is not None]
    if sum(one.share for one in under) < LEAST_COVERED:
        return abstention("roofline", "share of roof", "most kernels have no known peak to compare with")
    reached = unit_share(
        sum(one.roof_ns or 0.0 for one in under) / max(1.0, sum(one.work.kernel_ns for one in under))
    )
    if reached is None:
        return abstention("roofline", "share of roof", "the kernels have no usable values")
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
        signal="roofline",
        value=reached,
        unit="share of roof",
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
    """Whether calls are short, or made of small parts. A long call may have a lower roof, not measured."""
    return is_made_of_parts(work) or work.kernel_ns / max(1.0, work.count) <= thresholds.LONG_CALL_NS


def _call_ns(found: Roofs) -> float:
    """Mean time of one call of what is underfilled."""
    low = [one.work for one in _far_below(found)]
    return sum(work.kernel_ns for work in low) / max(1.0, sum(work.count for work in low)) if low else 0.0


def page_faults(measured: Measurements) -> Reading:
    """Says how much of the step goes into them."""
    sampled = measured.phases
    if sampled is None or sampled.minor_faults is None:
        return abstention("page_faults", STEP, "page faults were not counted")
    share = unit_share(_share(measured))
    if share is None:
        return abstention("page_faults", STEP, "what a page fault takes here was not measured")
    cost_ns = duration(measured.fault_ns or 0.0)
    return Reading(
        signal="page_faults",
        value=share,
        unit=STEP,
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
