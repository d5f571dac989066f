"""`repeat` multiplications of each element of a large array, fused into one pass by torch.compile.

More of them raise the arithmetic intensity and leave the bytes alone: the runtime stays flat until
the ridge point. Bytes are one read and one write an element, FLOPs are N * repeat.
"""

from __future__ import annotations

import msgspec
import torch

from autobrrr.roofline.roofline_bench import RooflineBench, first_call
from autobrrr.roofline.roofline_records import Roofline, SweepPoint

REPEATS = (1, 4, 8, 16, 32, 64, 256)


def measure(bench: RooflineBench, so_far: Roofline) -> Roofline:
    """Raises NoCompiler."""
    count = bench.large_elements
    x, out = torch.ones(count, device=bench.device), torch.zeros(count, device=bench.device)
    points = [_point(bench, repeat, x, out) for repeat in REPEATS]
    return msgspec.structs.replace(so_far, sweep=points)


def _point(bench: RooflineBench, repeat: int, x: torch.Tensor, out: torch.Tensor) -> SweepPoint:
    def doubled(x: torch.Tensor, out: torch.Tensor) -> None:
        y = x
        for _ in range(repeat):
            y = y * 2
        out.copy_(y)  # into memory that is there: fresh pages would cost more than the pass

    fused = bench.compiled(doubled)
    first_call(lambda: fused(x, out))
    ns = bench.best_ns(lambda: fused(x, out))
    count = x.numel()
    return SweepPoint(
        repeat=repeat,
        runtime_ns=ns,
        flops=count * repeat / ns * 1e9,
        bytes_per_s=2 * 4 * count / ns * 1e9,
    )
