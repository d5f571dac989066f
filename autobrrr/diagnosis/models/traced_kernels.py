"""Kernel work of the traced steps, checked and put in relation to the plain steps around them.

In comes `TracedSteps`, out goes the share of each phase in which kernels work, or the reason why
the trace can't be trusted. What kernels leave of a phase is dispatch, Python or waiting.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import once
from autobrrr.diagnosis.models.cpu_delay import foreign_delay
from autobrrr.diagnosis.robust_stats import (
    interquartile,
    median,
    of_one,
    positive,
    share_of,
    spread,
    trimmed_mean,
)
from autobrrr.records import TracedSteps

COMPUTE_STEMS = (
    *("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "matmul", "linear"),
    *("linear_backward", "bilinear", "einsum", "lstm", "gru", "rnn_tanh", "rnn_relu"),
)
COMPUTE_MARKS = (
    *("conv", "attention", "mkldnn", "_rnn", "_lstm", "_gru", "scaled_mm", "int_mm", "addmm"),
    *("matrix_exp", "cholesky", "linalg_solve", "linalg_inv", "linalg_svd", "linalg_qr", "linalg_eigh"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelWork:
    """What the kernels do of a plain step.

    `by_phase` is the share of each phase's own time; empty where phases were not measured. `at_least`:
    the traced steps were faster than plain ones (malloc mapped less memory in them, say), so kernels
    take at least this of a plain step, and what is left can't be told from them.
    """

    step_ns: float  # median plain step among the traced ones
    share: float  # of the whole step
    spread: float  # IQR of kernel work / step
    operations: float | None
    by_phase: Mapping[str, float]
    plain_by_phase_ns: Mapping[str, float]
    compute: float | None  # of kernel work, the part in matmul, convolution, attention
    steps: int
    at_least: bool = False
    by_each: bool = False  # steps differ in length, and kernels take the same part of each


@once
def kernel_work(traced: TracedSteps | None) -> KernelWork | str:
    """The traced steps' kernel work, or why there is none."""
    if traced is None:
        return "no step traced yet"
    if traced.status != "ok":
        return traced.why or "the trace was not possible"
    reason, ragged = untrusted(traced), _ragged(traced)
    if reason is not None and ragged is None:
        return reason
    plain_ns, width = ragged or median(traced.plain_step_ns), interquartile(traced.kernel_ns)
    if not plain_ns or width is None:
        return "the traced steps have no usable values"
    kernel_ns = (median if width <= thresholds.KERNEL_SPREAD * plain_ns else _usual)(traced.kernel_ns) or 0.0
    agree = thresholds.PARTS_AGREE if ragged is None else math.inf
    plain = _added_up(traced.plain_by_phase_ns, plain_ns, agree)
    kernel = _added_up(traced.kernel_by_phase_ns, kernel_ns)
    if plain is None or kernel is None:
        return "the phases of the traced steps do not add up to whole steps"
    by_phase = {
        phase: part
        for phase, part in ((name, share_of(kernel.get(name, 0.0), ns)) for name, ns in plain.items())
        if part is not None
    }
    share = share_of(kernel_ns, plain_ns)
    if share is None:
        return "the traced steps have no usable values"
    return KernelWork(
        step_ns=plain_ns,
        share=share,
        spread=width / plain_ns,
        operations=positive(median(traced.operations)),
        by_phase=by_phase,
        plain_by_phase_ns=plain,
        compute=compute_part(traced),
        steps=min(len(traced.kernel_ns), len(traced.plain_step_ns)),
        at_least=share >= thresholds.NAMED_AT
        if ragged is not None
        else (median(traced.traced_step_ns) or 0.0) < thresholds.TRACED_OVER_PLAIN * plain_ns,
        by_each=ragged is not None,
    )


def _ragged(traced: TracedSteps) -> float | None:
    """A traced step as long as kernels take the same part of each, where steps differ in length; else None.

    Batches padded to their longest item, or episodes, make traced and plain steps hard to compare. The agent
    gives kernels at the speed of the usual traced step, so they are held against that. The profiler makes it
    longer, by no more than dispatch takes: kernels that lead all the same take at least their part of it.
    Where they don't lead, all of that comes off, and they take at most their part of what is left.
    """
    usual_ns, kernel_ns = positive(median(traced.traced_step_ns)), _usual(traced.kernel_ns)
    width = interquartile(traced.kernel_ns)
    operations, cost_ns = _usual(traced.operations), positive(traced.op_cost_ns)
    steps = min(len(traced.kernel_ns), len(traced.traced_step_ns), len(traced.operations))
    width_of_steps = max(spread(traced.plain_step_ns) or 0.0, spread(traced.traced_step_ns) or 0.0)
    if (
        width_of_steps <= thresholds.STEP_SPREAD
        or busy_while_traced(traced) is not None
        or steps < thresholds.TRACED_STEPS
    ):
        return None
    if usual_ns is None or kernel_ns is None or width is None or operations is None:
        return None
    if width > thresholds.KERNEL_SPREAD * usual_ns and not _sure(traced.kernel_ns, usual_ns):
        return None
    if kernel_ns >= thresholds.NAMED_AT * usual_ns:
        return usual_ns
    left_ns = None if cost_ns is None else positive(usual_ns - operations * cost_ns)
    return left_ns if left_ns is not None and kernel_ns < thresholds.NAMED_AT * left_ns else None


def busy_while_traced(traced: TracedSteps) -> str | None:
    """That others kept the traced steps from a CPU, in words; None where they did not."""
    delay = foreign_delay(traced.run_delay_share, traced.foreign_cores)
    if delay is None or delay < thresholds.BUSY_AT:
        return None
    return f"machine busy while tracing ({of_one(min(1.0, delay))} of the time without a CPU)"


def untrusted(traced: TracedSteps) -> str | None:
    """The guard that the traced steps fail, in words; None where they pass all."""
    steps = min(len(traced.kernel_ns), len(traced.plain_step_ns), len(traced.traced_step_ns))
    if steps < thresholds.TRACED_STEPS:
        return f"{steps} of {thresholds.TRACED_STEPS} steps were traced"
    if min(*traced.kernel_ns, *traced.plain_step_ns, *traced.traced_step_ns) < 0:
        return "the traced steps hold negative times"
    plain_ns, traced_ns = positive(median(traced.plain_step_ns)), positive(median(traced.traced_step_ns))
    steadiness, width = spread(traced.plain_step_ns), interquartile(traced.kernel_ns)
    if plain_ns is None or traced_ns is None or steadiness is None or width is None:
        return "the traced steps have no usable values"
    busy = busy_while_traced(traced)
    if busy is not None:
        return busy
    if steadiness > thresholds.STEP_SPREAD:
        return f"steps vary by {of_one(steadiness)} in length, and so does what kernels take of each"
    if width > thresholds.KERNEL_SPREAD * plain_ns and not _sure(traced.kernel_ns, plain_ns):
        return (
            f"kernel work varies by {of_one(width / plain_ns)} of the step "
            f"(IQR; at most {of_one(thresholds.KERNEL_SPREAD)})"
        )
    if traced_ns < thresholds.TRACED_LEAST * plain_ns:
        return "traced steps were faster than plain ones: they did not do the same work"
    different = spread(traced.operations) if traced.operations else None
    if different is not None and different > thresholds.OPERATION_SPREAD:
        return f"the number of operators varies by {of_one(different)} from step to step"
    return None


def _usual(values: Sequence[int]) -> float | None:
    found = trimmed_mean(values)
    return None if found is None else found[0]


def _sure(kernel_ns: Sequence[int], step_ns: float) -> bool:
    """Whether the mean of many uneven values is known to within a standard error."""
    found = trimmed_mean(kernel_ns)
    known = found is not None and found[1] <= thresholds.KERNEL_ERROR * step_ns
    return known and len(kernel_ns) >= thresholds.MANY_STEPS


def compute_part(traced: TracedSteps) -> float | None:
    """Of all kernel time, the part in matmul, convolution, attention and recurrent operators."""
    times = [(entry.op, entry.kernel_ns) for entry in traced.by_op if positive(entry.kernel_ns)]
    return share_of(sum(ns for op, ns in times if is_compute(op)), sum(ns for _, ns in times))


def is_compute(op: str) -> bool:
    """Whether an operator does matrix products ("aten.addmm.default", "aten::bmm", "mm")."""
    stem = op.replace("::", ".").removeprefix("aten.").split(".")[0].rstrip("_")
    return stem in COMPUTE_STEMS or any(mark in stem for mark in COMPUTE_MARKS)


def _added_up(
    by_phase_ns: Mapping[str, float], step_ns: float, agree: float = thresholds.PARTS_AGREE
) -> dict[str, float] | None:
    """Phase means, scaled to the median step that they belong to; None where they are far from it.

    Means hold slow steps that a median leaves out, and one among six would tilt every phase.
    """
    kept = {name: positive(ns) for name, ns in by_phase_ns.items()}
    present = {name: ns for name, ns in kept.items() if ns is not None}
    total = positive(sum(present.values()))
    if total is None or step_ns <= 0:
        return {}
    if not 1 / agree <= total / step_ns <= agree:
        return None
    return {name: ns * step_ns / total for name, ns in present.items()}
