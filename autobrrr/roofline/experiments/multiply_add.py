"""Peak of the vector units on data in cache: multiplications alone, and fused multiply-adds.

Eight independent chains hide the latency of each step. A data sheet counts a fused multiply-add as
two operations: code without additions to fuse reaches half of it at best.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import msgspec
import torch

from autobrrr.roofline.roofline_bench import RooflineBench, first_call
from autobrrr.roofline.roofline_records import MultiplyAdd, Roofline

CHAINS = 8
STEPS = 16
ELEMENTS_CPU = 1 << 17  # two arrays of 512 KiB
ELEMENTS_GPU = 1 << 22
CONTRACT = "cpp.enable_floating_point_contract_flag"


def measure(bench: RooflineBench, so_far: Roofline) -> Roofline:
    """Raises NoCompiler."""
    operations = CHAINS * STEPS
    return msgspec.structs.replace(
        so_far,
        multiply_add=MultiplyAdd(
            multiply_flops=_flops(bench, _multiply, operations),
            multiply_add_flops=_flops(bench, _multiply_add, 2 * operations),
        ),
    )


def _flops(bench: RooflineBench, step: Callable[[torch.Tensor], torch.Tensor], operations: int) -> float:
    def chains(x: torch.Tensor, out: torch.Tensor) -> None:
        total = x
        for chain in range(CHAINS):
            y = x + float(chain + 1)
            for _ in range(STEPS):
                y = step(y)
            total = total + y
        out.copy_(total)

    count = ELEMENTS_CPU if bench.on_cpu else ELEMENTS_GPU
    x, out = torch.rand(count, device=bench.device), torch.zeros(count, device=bench.device)
    with _contraction():
        fused = bench.compiled(chains)
        first_call(lambda: fused(x, out))
    extra = 2 * CHAINS  # what starts a chain and what adds it up
    return (operations + extra) * count / bench.best_ns(lambda: fused(x, out)) * 1e9


def _multiply(y: torch.Tensor) -> torch.Tensor:
    return y * 1.0001


def _multiply_add(y: torch.Tensor) -> torch.Tensor:
    return y * 0.9999 + 0.0001


def _contraction() -> AbstractContextManager[None]:
    """Lets the C++ compiler fuse; the flag is a word in newer versions of torch, a boolean before."""
    from torch._inductor import config

    flag = config.cpp.enable_floating_point_contract_flag
    patch: AbstractContextManager[None] = config.patch({CONTRACT: True if isinstance(flag, bool) else "fast"})
    return patch
