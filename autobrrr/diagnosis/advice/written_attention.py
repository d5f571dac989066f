"""Attention written out by hand, recognised twice: in the modules' code and in the traced operators.

Softmax over scores between two products of the same batch of matrices, where torch has one kernel that
never writes the scores down. The reason names the shape, the line and what the chain takes of the step.
"""

from __future__ import annotations

import math

from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.roofs import shapes_of
from autobrrr.diagnosis.models.sampled_frames import sites
from autobrrr.diagnosis.models.traced_kernels import KernelWork, kernel_work
from autobrrr.diagnosis.robust_stats import of_one, positive
from autobrrr.records import OpWork, TracedSteps

NOTICEABLE = 0.05
SAVED = (
    0.28  # of the chain, forward and backward: the median of 14 shapes, with and without a mask, 0.06 to 0.61
)
SHORTEST = 16  # keys: below it there is nothing to save
CALLED = ("scaled_dot_product", "_safe_softmax")  # the latter where a CPU has no kernel, as with dropout
CHAIN = ("softmax", "bmm", "mul", "div", "masked_fill", "where", "add", "dropout", "copy", "clone")


def written_attention(measured: Measurements) -> tuple[str, float | None] | None:
    """Why to call scaled_dot_product_attention, and where, and what that saves of the step; None: no need."""
    where = _line(measured)
    traced = measured.traced
    work = kernel_work(traced)
    if traced is None or not isinstance(work, KernelWork):
        return (
            None
            if where is None or traced is not None
            else (_said(where, ", with its scores in memory"), None)
        )
    if any(mark in one.op for one in traced.by_op for mark in CALLED):
        return None
    scores = _scores(traced)
    if scores is None:
        return None
    spent_ns = sum(one.kernel_ns for one in traced.work if _of_chain(one, scores))
    share = spent_ns / work.step_ns
    if share < NOTICEABLE:
        return None
    shown = "x".join(map(str, scores))
    cost = f": scores of {shown} are written and read again, {of_one(share)} of the step"
    return _said(where, cost), SAVED * share


def _said(where: str | None, cost: str) -> str:
    own = "torch.nn.functional.scaled_dot_product_attention never writes them down"
    if where is None:
        return (
            f"attention is written out{cost}; {own}: nn.MultiheadAttention calls it with need_weights=False"
        )
    return f"attention is written out at {where}{cost}; {own}"


def _line(measured: Measurements) -> str | None:
    found = [site.where for site in sites(measured, "attention")]
    found += [] if measured.anatomy is None else measured.anatomy.attention
    return next(iter(found), None)


def _scores(traced: TracedSteps) -> tuple[int, ...] | None:
    """The shape of a softmax whose matrices a product makes and another one takes."""
    forward = [one for one in traced.work if one.phase == "forward"]
    products = [shapes_of(one) for one in forward if ".bmm" in one.op or "baddbmm" in one.op]
    for one in forward:
        if "softmax" not in one.op or "backward" in one.op:
            continue
        shape = next(iter(shapes_of(one)), ())
        if len(shape) < 3 or shape[-1] < SHORTEST:
            continue
        flat = (math.prod(shape[:-2]), *shape[-2:])
        makes = any(len(each) >= 2 and _product(each[-2], each[-1]) == flat for each in products)
        takes = any(each and each[-2:][0] == flat for each in products)
        if makes and takes:
            return shape
    return None


def _product(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...] | None:
    if len(left) != 3 or len(right) != 3 or left[2] != right[1]:
        return None
    return left[0], left[1], right[2]


def _of_chain(one: OpWork, scores: tuple[int, ...]) -> bool:
    """Whether a call reads or makes the scores, or their gradient."""
    count = math.prod(scores)
    if not any(mark in one.op for mark in CHAIN) or positive(one.kernel_ns) is None:
        return False
    shapes = shapes_of(one)
    made = _product(shapes[-2], shapes[-1]) if len(shapes) >= 2 and "bmm" in one.op else None
    return count in [math.prod(shape) for shape in (*shapes, *([made] if made else []))]
