"""FLOP/s of square matmuls against their size, for each type of number that the device multiplies well."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import torch

from autobrrr.roofline.roofline_bench import RooflineBench
from autobrrr.roofline.roofline_records import DtypeMatmul, Roofline

SIZES_CPU = (16, 32, 64, 128, 256, 512, 1024, 2048)
SIZES_GPU = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
BUDGET_S = 0.12
LONGEST_NS = 500_000_000  # a run as long as this is the last: the next size takes eight times as long


def measure(bench: RooflineBench, so_far: Roofline) -> Roofline:
    found = [point for dtype in _dtypes(bench) for point in _curve(bench, dtype)]
    return msgspec.structs.replace(so_far, matmul=found)


def _dtypes(bench: RooflineBench) -> list[str]:
    if bench.on_cpu:
        return ["float32", "bfloat16"]
    half = ["float16"] + (["bfloat16"] if torch.cuda.is_bf16_supported() else [])
    return ["float32", "tf32", *half]


def _curve(bench: RooflineBench, dtype: str) -> Iterator[DtypeMatmul]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    try:
        for n in SIZES_CPU if bench.on_cpu else SIZES_GPU:
            if bench.effort < 1 and n > 256:
                return
            ns = _run_ns(bench, n, torch.float32 if dtype == "tf32" else getattr(torch, dtype))
            yield DtypeMatmul(dtype=dtype, n=n, flops=2 * n**3 / ns * 1e9)
            if ns > LONGEST_NS:
                return
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _run_ns(bench: RooflineBench, n: int, dtype: torch.dtype) -> int:
    left, right = (torch.randn(n, n, device=bench.device).to(dtype) for _ in range(2))
    out = torch.empty_like(left)
    return bench.best_ns(lambda: torch.mm(left, right, out=out), BUDGET_S)
