"""x.cos().cos(): two passes over memory, or one that a compiler fused, against a single cosine.

Where memory is the limit fusing doubles the speed, and the second cosine is free. A cosine may be
too heavy for that on a CPU: a pair of light operations shows what fusing itself gives.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import torch

from autobrrr.roofline.roofline_bench import RooflineBench, first_call
from autobrrr.roofline.roofline_records import Fusion, Roofline

Pointwise = Callable[[torch.Tensor], torch.Tensor]


def measure(bench: RooflineBench, so_far: Roofline) -> Roofline:
    """Raises NoCompiler."""
    x = torch.rand(bench.large_elements, device=bench.device)
    single_ns, unfused_ns, fused_ns = _pair(bench, x, torch.cos, torch.cos)
    _, light_unfused_ns, light_fused_ns = _pair(bench, x, lambda y: y * 2, lambda y: y + 1)
    fusion = Fusion(
        unfused_ns=unfused_ns,
        fused_ns=fused_ns,
        ratio=unfused_ns / fused_ns,
        single_ns=single_ns,
        light_unfused_ns=light_unfused_ns,
        light_fused_ns=light_fused_ns,
        light_ratio=light_unfused_ns / light_fused_ns,
    )
    return msgspec.structs.replace(so_far, fusion=fusion)


def _pair(bench: RooflineBench, x: torch.Tensor, first: Pointwise, second: Pointwise) -> tuple[int, int, int]:
    """Nanoseconds of the first alone, of one after the other, and of both fused.

    All are compiled, so that only the fusion differs and not the code of the operations.
    """
    between, out = torch.zeros_like(x), torch.zeros_like(x)

    def one(x: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(first(x))

    def other(x: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(second(x))

    def both(x: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(second(first(x)))

    one_kernel, other_kernel, fused = (bench.compiled(each) for each in (one, other, both))
    for kernel in (one_kernel, other_kernel, fused):
        first_call(lambda kernel=kernel: kernel(x, out))  # type: ignore[misc]
    return (
        bench.best_ns(lambda: one_kernel(x, out)),
        bench.best_ns(lambda: (one_kernel(x, between), other_kernel(between, out))),
        bench.best_ns(lambda: fused(x, out)),
    )
