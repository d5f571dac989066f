"""What follows from the measurements: peaks, the ridge point, what one Python addition costs."""

from __future__ import annotations

import msgspec

from autobrrr.roofline.roofline_records import Roofline

ITEM_BYTES = 4  # of a 32-bit float


def with_peaks(found: Roofline) -> Roofline:
    """The same figures, the derived ones filled in."""
    matmuls: dict[str, float] = {}
    for point in found.matmul:
        matmuls[point.dtype] = max(matmuls.get(point.dtype, 0.0), point.flops)
    speeds = [found.copy_bytes_per_s, found.triad_bytes_per_s, *(point.bytes_per_s for point in found.sweep)]
    bytes_per_s = max((speed for speed in speeds if speed is not None), default=None)
    peak = max(matmuls.values(), default=None)
    pointwise = pointwise_flops(found)
    return msgspec.structs.replace(
        found,
        peak_flops=matmuls,
        peak_bytes_per_s=bytes_per_s,
        ridge_ops_per_element=(
            2 * ITEM_BYTES * pointwise / bytes_per_s if pointwise and bytes_per_s else None
        ),
        flops_per_python_add=(peak / found.python_adds_per_s if peak and found.python_adds_per_s else None),
    )


def pointwise_flops(found: Roofline) -> float | None:
    """What the vector units reach without multiply-adds, in fp32; None without a compiler.

    The ridge point of pointwise work hangs on this one: matmul units do nothing for it.
    """
    reached = [point.flops for point in found.sweep]
    if found.multiply_add is not None:
        reached.append(found.multiply_add.multiply_flops)
    return max(reached, default=None)
