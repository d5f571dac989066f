"""Why kernels stay far below both roofs: too small, made of many small parts, or of a kind of its own.

In: one operator's calls under the roofs. Out: what holds them back, where shapes tell it. Only what is
small is underfilled: a long call that is far below both roofs may have a roof of its own.
"""

from __future__ import annotations

import enum
from collections import defaultdict

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.models.roofs import RoofedOp, Roofs, is_made_of_parts, shapes_of


class Cause(enum.Enum):
    """In words."""

    SMALL = "too small for this machine"
    PARTS = "made of many small products"
    DEPTHWISE = "depthwise convolutions"
    LINEAR = "one-dimensional convolutions"
    UNKNOWN = "for a reason that shapes don't tell"


UNDERFILLED = (Cause.SMALL, Cause.PARTS)


def cause(one: RoofedOp) -> Cause:
    """What keeps these calls below the roofs."""
    stem = one.work.op.removeprefix("aten.").partition(".")[0]
    shapes = shapes_of(one.work)
    if is_made_of_parts(one.work):
        return Cause.PARTS
    if one.work.kernel_ns / max(1.0, one.work.count) <= thresholds.LONG_CALL_NS:
        return Cause.SMALL
    if "convolution" in stem:
        # A depthwise weight alone has one channel; in a first layer on gray images the input has one too.
        single = [shape for shape in shapes if len(shape) > 2 and shape[1] == 1]
        if len(single) == 1 and single[0][0] > 1:
            return Cause.DEPTHWISE
        if shapes and len(shapes[0]) == 3:
            return Cause.LINEAR
    return Cause.UNKNOWN


def by_cause(found: Roofs) -> dict[Cause, float]:
    """Shares of the step in kernels below both roofs, largest first."""
    shares: dict[Cause, float] = defaultdict(float)
    for one in found.ops:
        if one.regime in ("underfilled", "overhead"):
            shares[cause(one)] += found.kernels * one.share
    return dict(sorted(shares.items(), key=lambda item: -item[1]))
