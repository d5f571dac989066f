"""Kernels against the two roofs of this machine: matmul FLOP/s and memory bandwidth, as measured here.

In: the work of one step's operators (shapes) with the time of their kernels, and the peaks at the
job's own number of threads. Out: for each operator how much of its time the nearer roof explains, and
so what its time is: compute, memory or underfilled. A product below the ridge is memory. A long product has a
roof of its own, where one such call was run by itself: what that takes is compute above the ridge and memory
below it, however far it is from the rates of a square product and of a plain copy. Where the job's threads
take the CPUs from each other, a kernel far below both roofs is one that waits: overhead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements, once
from autobrrr.diagnosis.models.cpu_delay import is_oversubscribed
from autobrrr.diagnosis.models.op_classes import MATMUL, op_class
from autobrrr.diagnosis.models.traced_kernels import KernelWork, kernel_work
from autobrrr.diagnosis.robust_stats import positive
from autobrrr.records import OpWork, Regime
from autobrrr.roofline.quick_peaks import MeasuredPeaks

# Lanes of a register: a float64 peak is half of the float32 one. Of other types none was measured.
PEAK_OF = {"float32": 1.0, "float64": 0.5}
STEPPED = ("rnn", "lstm", "gru")  # one call runs a product for each step of a sequence
BATCHED = ("bmm", "baddbmm", "addbmm")
SMALL_SIDE = 64  # of each matrix of a batched product


@dataclass(frozen=True, slots=True, kw_only=True)
class RoofedOp:
    """Calls of one operator, held against the roofs. Times are per step, shares of all kernels."""

    work: OpWork
    kind: str
    share: float
    flops_ns: float | None  # at the peak; None: no roof for it
    bytes_ns: float | None  # at the bandwidth
    regime: Regime | None  # None: its shapes were not read
    own_ns: float | None = None  # what these calls take by themselves

    @property
    def roof_ns(self) -> float | None:
        """What the nearer roof needs at least; never more than it took (caches are faster than memory)."""
        known = [ns for ns in (self.flops_ns, self.bytes_ns, self.own_ns) if ns is not None]
        return min(max(known), self.work.kernel_ns) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofs:
    """One step's kernels. `peaks` is None where there are none to hold them against: `why` says it.

    Peaks that were measured while others had the cores are too low, by their `doubt` at most: a rate less
    that is what the job reaches at least.
    """

    ops: tuple[RoofedOp, ...]
    kernels: float  # share of the step in which kernels work, outside the loader
    peaks: MeasuredPeaks | None
    why: str
    short_ns: float = thresholds.KERNEL_NS  # a call of less is mostly getting there and back

    def share(self, regime: Regime) -> float:
        """Share of the step in kernels of one regime."""
        return self.kernels * sum(one.share for one in self.ops if one.regime == regime)

    @property
    def unclear(self) -> float:
        """Of the underfilled kernels' time, that in calls so short that most of it may be dispatch."""
        low = [one for one in self.ops if one.regime == "underfilled"]
        short = [one for one in low if one.work.kernel_ns < self.short_ns * one.work.count]
        everything = sum(one.share for one in low)
        return sum(one.share for one in short) / everything if everything else 0.0

    @property
    def unread(self) -> float:
        """Share of the step in kernels of unknown shape: they may be of any regime."""
        return self.kernels * sum(one.share for one in self.ops if one.regime is None)

    def by_kind(self, regime: Regime | None = None) -> dict[str, float]:
        """Shares of the step by operator class, largest first."""
        found: dict[str, float] = defaultdict(float)
        for one in self.ops:
            if regime is None or one.regime == regime:
                found[one.kind] += self.kernels * one.share
        return dict(sorted(found.items(), key=lambda item: -item[1]))


@once
def roofs(measured: Measurements) -> Roofs | str:
    """The step's kernels under their roofs, or why they can't be held against them."""
    trusted, traced = kernel_work(measured.traced), measured.traced
    if not isinstance(trusted, KernelWork) or traced is None:
        return str(trusted)
    work = [one for one in traced.work if positive(one.kernel_ns)]
    if not work:
        return "the shapes of its operators were not read"
    loading = positive(traced.kernel_by_phase_ns.get("data_wait")) or 0.0
    everything = sum(ns for ns in map(positive, traced.kernel_by_phase_ns.values()) if ns) - loading
    listed = sum(one.kernel_ns for one in work)
    # The table and the phases are means over the same steps; the larger holds all that is listed. Of steps
    # that differ in length the table has other ones.
    total = listed if trusted.by_each else max(everything, listed)
    peaks, why = usable_peaks(measured)
    crowded = is_oversubscribed(measured)
    return Roofs(
        ops=tuple(_roofed(one, one.kernel_ns / total, peaks, crowded) for one in work),
        kernels=trusted.share * everything / (everything + loading) if everything > 0 else trusted.share,
        peaks=peaks,
        why=why,
        short_ns=max(
            thresholds.KERNEL_NS, thresholds.KERNEL_DISPATCHES * (positive(traced.op_cost_ns) or 0.0)
        ),
    )


def usable_peaks(measured: Measurements) -> tuple[MeasuredPeaks | None, str]:
    """The peaks that hold for this job, or why there are none."""
    peaks = measured.peaks
    threads = threads_at_once(measured)
    if peaks is None:
        return None, "this machine's peak is not measured yet: run diagnose"
    if threads is not None and peaks.threads != threads:
        return None, f"peaks are known at {peaks.threads} threads, the job has {threads}"
    if positive(peaks.matmul_flops) is None or positive(peaks.triad_bytes_per_s) is None:
        return None, "the peaks of this machine have no usable values"
    # Beside a job whose threads hold every CPU peaks come out too low: what stays far below them does so all
    # the more, and what comes near them is doubted by as much.
    disturbed = peaks.doubt("matmul_flops") > thresholds.PEAKS_DISTURBED_AT
    if disturbed and not is_oversubscribed(measured):
        return None, "this machine's peak was measured while it was busy: run diagnose again"
    return peaks, ""


def threads_at_once(measured: Measurements) -> int | None:
    """Threads of one operator that can run at the same time: no more than the job has CPUs."""
    threads = None if measured.facts is None else measured.facts.threads
    return threads if threads is None or not measured.cores else min(threads, measured.cores)


def shape_of_product(work: OpWork) -> tuple[int, int, int] | None:
    """m, n, k of a plain matrix product; None for anything else."""
    stem, shapes = op_stem(work), shapes_of(work)
    factors = shapes[1:3] if stem == "addmm" else shapes[:2] if stem == "mm" else []
    if len(factors) != 2 or any(len(one) != 2 for one in factors):
        return None
    (m, k), (_, n) = factors
    return m, n, k


def _roofed(work: OpWork, share: float, peaks: MeasuredPeaks | None, crowded: bool) -> RoofedOp:
    kind = op_class(work.op, work.phase)
    flops_ns, moved = _flops_ns(work, peaks), positive(work.bytes)
    bytes_ns = None if peaks is None or moved is None else 1e9 * moved / peaks.triad_bytes_per_s
    read = work.flops is not None or work.bytes is not None
    regime = _regime(work, kind, flops_ns, bytes_ns) if read else None
    own_ns = None if crowded else _own_ns(work, kind)
    if regime == "underfilled" and own_ns is not None and own_ns >= thresholds.NAMED_AT * work.kernel_ns:
        below_ridge = bytes_ns is not None and bytes_ns > (flops_ns or 0.0)
        regime = "memory" if below_ridge else "compute"
    known = [ns for ns in (flops_ns, bytes_ns) if ns is not None]
    if crowded and known and max(known) < thresholds.ROOF_LOW * work.kernel_ns:
        regime = "overhead"
    return RoofedOp(
        work=work, kind=kind, share=share, flops_ns=flops_ns, bytes_ns=bytes_ns, regime=regime, own_ns=own_ns
    )


def _own_ns(work: OpWork, kind: str) -> float | None:
    """What these calls take by themselves; of long ones only: a short one may be all way in and out."""
    alone_ns, calls = positive(work.alone_ns), positive(work.count)
    if kind != MATMUL or alone_ns is None or calls is None or is_made_of_parts(work) or _is_grouped(work):
        return None
    return alone_ns * calls if work.kernel_ns > thresholds.LONG_CALL_NS * calls else None


def _is_grouped(work: OpWork) -> bool:
    """Whether it convolves groups of channels apart: slow alone as well, and no product near the peak."""
    at = int("convolution_backward" in work.op)
    pair = shapes_of(work)[at : at + 2] if "convolution" in work.op else []
    return len(pair) == 2 and len(pair[0]) == len(pair[1]) > 2 and pair[1][1] < pair[0][1]


def is_made_of_parts(work: OpWork) -> bool:
    """Whether one call runs many small products: batched ones, or those of the steps of a sequence."""
    stem, shapes = op_stem(work), shapes_of(work)
    if any(mark in stem for mark in STEPPED):
        return True
    sides = [max(shape[1:], default=1) for shape in shapes]
    return stem in BATCHED and bool(sides) and max(sides) <= SMALL_SIDE


def op_stem(work: OpWork) -> str:
    """`mm` of "aten.mm.default"."""
    return work.op.removeprefix("aten.").partition(".")[0]


def shapes_of(work: OpWork) -> list[tuple[int, ...]]:
    """Of the first arguments; none where they can't be read."""
    try:
        return [tuple(map(int, one.split("x"))) for one in work.shapes.split()]
    except ValueError:
        return []


def _flops_ns(work: OpWork, peaks: MeasuredPeaks | None) -> float | None:
    flops, scale = positive(work.flops), PEAK_OF.get(work.dtype)
    return (
        None
        if peaks is None or flops is None or scale is None
        else 1e9 * flops / (scale * peaks.matmul_flops)
    )


def _regime(work: OpWork, kind: str, flops_ns: float | None, bytes_ns: float | None) -> Regime:
    if kind == MATMUL and flops_ns is None:
        return "compute"
    if kind == MATMUL and flops_ns is not None and flops_ns >= (bytes_ns or 0.0):
        return "compute" if flops_ns >= thresholds.ROOF_LOW * work.kernel_ns else "underfilled"
    if bytes_ns is None:
        return "memory"
    if kind == MATMUL:  # below the ridge: held back by its factors' bytes, or by neither roof
        return "memory" if bytes_ns >= thresholds.ROOF_LOW * work.kernel_ns else "underfilled"
    # A large tensor that moves slowly (page faults, exponentials, a product of two rows) is still one that
    # is moved: only a kernel with too little to do is underfilled.
    small = bytes_ns < thresholds.SMALL_CALL_NS * max(1.0, work.count)
    return "underfilled" if small and bytes_ns < thresholds.ROOF_LOW * work.kernel_ns else "memory"


def by_regime(found: Roofs) -> Mapping[str, float]:
    """Shares of the step by regime of the kernels; those below both roofs only where there are roofs."""
    kinds: tuple[Regime, ...] = ("compute", "memory")
    if found.peaks is not None:
        kinds += ("underfilled", "overhead")
    return {kind: found.share(kind) for kind in kinds}
