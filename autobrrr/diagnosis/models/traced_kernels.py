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
    "mm",
    "addmm",
    "bmm",
    "baddbmm",
    "addbmm",
    "mv",
    "addmv",
    "dot",
    "vdot",
    "matmul",
    "linear",
    "linear_backward",
    "bilinear",
    "einsum",
    "lstm",
    "gru",
    "rnn_tanh",
    "rnn_relu",
)
COMPUTE_MARKS = ("conv", "attention", "mkldnn", "_rnn", "_lstm", "_gru", "scaled_mm", "int_mm", "addmm")


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


@once
def kernel_work(traced: TracedSteps | None) -> KernelWork | str:
    """The traced steps' kernel work, or why there is none."""
    if traced is None:
        return "no step traced yet"
    if traced.status != "ok":
        return traced.why or "the trace was not possible"
    reason = untrusted(traced)
    ragged = reason is not None and _ragged(traced)
    if reason is not None and not ragged:
        return reason
    centre = median if _even(traced) else _usual
    plain_ns, kernel_ns = centre(traced.plain_step_ns), centre(traced.kernel_ns)
    if ragged:  # of each traced step by itself, which the mode makes longer: at least this share of any
        plain_ns = centre(traced.traced_step_ns)
    if plain_ns is None or kernel_ns is None:
        return "the traced steps hold no figures"
    plain, kernel = (
        _added_up(traced.plain_by_phase_ns, plain_ns, math.inf if ragged else thresholds.PARTS_AGREE),
        _added_up(traced.kernel_by_phase_ns, kernel_ns),
    )
    if plain is None or kernel is None:
        return "the phases of the traced steps do not add up to whole steps"
    by_phase = {
        phase: part
        for phase, part in ((name, share_of(kernel.get(name, 0.0), ns)) for name, ns in plain.items())
        if part is not None
    }
    share = share_of(kernel_ns, plain_ns)
    width = interquartile(traced.kernel_ns)
    if share is None or width is None:
        return "the traced steps hold no figures"
    return KernelWork(
        step_ns=plain_ns,
        share=share,
        spread=width / plain_ns,
        operations=positive(median(traced.operations)),
        by_phase=by_phase,
        plain_by_phase_ns=plain,
        compute=compute_part(traced),
        steps=min(len(traced.kernel_ns), len(traced.plain_step_ns)),
        at_least=ragged or (centre(traced.traced_step_ns) or 0.0) < thresholds.TRACED_OVER_PLAIN * plain_ns,
    )


def _ragged(traced: TracedSteps) -> bool:
    """Whether steps differ in length, as of batches padded to their longest item, and not in what they are.

    Then traced and plain steps can't be compared, but kernels take the same part of each.
    """
    delay = foreign_delay(traced.run_delay_share, traced.foreign_cores)
    pairs = list(zip(traced.kernel_ns, traced.traced_step_ns, strict=False))
    parts = [share_of(kernel_ns, step_ns) for kernel_ns, step_ns in pairs if min(kernel_ns, step_ns) > 0]
    known = [part for part in parts if part is not None]
    steadiness, operators = spread(known), spread(traced.operations)
    return (
        len(known) == len(pairs) >= thresholds.TRACED_STEPS
        and (delay is None or delay < thresholds.BUSY_AT)
        and steadiness is not None
        and steadiness <= thresholds.STEP_SPREAD
        and sum(known) >= thresholds.NAMED_AT * len(known)
        and operators is not None
        and operators <= thresholds.OPERATION_SPREAD
        and not _even(traced)
    )


def untrusted(traced: TracedSteps) -> str | None:
    """The guard that the traced steps fail, in words; None where they pass all."""
    steps = min(len(traced.kernel_ns), len(traced.plain_step_ns), len(traced.traced_step_ns))
    if steps < thresholds.TRACED_STEPS:
        return f"{steps} of {thresholds.TRACED_STEPS} traced and plain steps"
    if min(*traced.kernel_ns, *traced.plain_step_ns, *traced.traced_step_ns) < 0:
        return "the traced steps hold negative times"
    plain_ns, traced_ns = positive(median(traced.plain_step_ns)), positive(median(traced.traced_step_ns))
    steadiness, width = spread(traced.plain_step_ns), interquartile(traced.kernel_ns)
    if plain_ns is None or traced_ns is None or steadiness is None or width is None:
        return "the traced steps hold no figures"
    delay = foreign_delay(traced.run_delay_share, traced.foreign_cores)
    if delay is not None and not delay < thresholds.BUSY_AT:
        return f"machine busy while tracing ({of_one(delay)} of the time without a CPU)"
    mean_ns = positive(_usual(traced.plain_step_ns)) or plain_ns
    even = steadiness <= thresholds.STEP_SPREAD
    if not even and not _sure(traced.plain_step_ns, thresholds.STEP_ERROR * mean_ns):
        return (
            f"steps vary by {of_one(steadiness)} (IQR over median; at most {of_one(thresholds.STEP_SPREAD)})"
        )
    even = width / plain_ns <= thresholds.KERNEL_SPREAD
    if not even and not _sure(traced.kernel_ns, thresholds.KERNEL_ERROR * mean_ns):
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


def _even(traced: TracedSteps) -> bool:
    """Whether steps and kernel work vary so little that medians stand for them."""
    steadiness, width = spread(traced.plain_step_ns), interquartile(traced.kernel_ns)
    plain_ns = positive(median(traced.plain_step_ns))
    if steadiness is None or width is None or plain_ns is None:
        return True
    return steadiness <= thresholds.STEP_SPREAD and width / plain_ns <= thresholds.KERNEL_SPREAD


def _usual(values: Sequence[int]) -> float | None:
    found = trimmed_mean(values)
    return None if found is None else found[0]


def _sure(values: Sequence[int], most_ns: float) -> bool:
    """Whether the mean of many uneven values is known to within a standard error."""
    found = trimmed_mean(values)
    return found is not None and len(values) >= thresholds.MANY_STEPS and found[1] <= most_ns


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
