"""What Python, torch, memory and matmul units do in a second, without a compiler."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from autobrrr.roofline.roofline_bench import Fields, RooflineBench
from autobrrr.roofline.roofline_records import DtypeMatmul, LaunchCost

PYTHON_ADDS, TORCH_OPS = 200_000, 20_000
LAUNCHES = 2_000  # more would fill the device's queue, and the host would wait for its place
SIZES_CPU = (16, 32, 64, 128, 256, 512, 1024, 2048)
SIZES_GPU = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
MATMUL_S = 0.12
LONGEST_NS = 500_000_000  # a run as long as this is the last: the next size takes eight times as long


def python_adds(bench: RooflineBench) -> Fields:
    """Floating-point additions of Python, one after the other in a loop."""
    return {"python_adds_per_s": 1e9 / bench.statement_ns("a + b", {"a": 1.5, "b": 2.5}, PYTHON_ADDS)}


def torch_ops(bench: RooflineBench) -> Fields:
    """Additions of one-element tensors: all of it is overhead."""
    names = {name: torch.ones(1, device=bench.device) for name in "ab"}
    return {"torch_ops_per_s": 1e9 / bench.statement_ns("a + b", names, TORCH_OPS)}


def launches(bench: RooflineBench) -> Fields:
    """A kernel launch queued among many, and waited for; on a CPU there is nothing to launch."""
    if bench.on_cpu:
        return {}
    x = torch.ones(1, device=bench.device)
    queued = bench.statement_ns("x.zero_()", {"x": x}, LAUNCHES)
    return {"launch": LaunchCost(queued_ns=queued, awaited_ns=float(bench.best_ns(x.zero_)))}


def bandwidth(bench: RooflineBench) -> Fields:
    """Bytes to and from memory: copy (2 bytes moved a byte) and triad a = b + 3 c (3)."""
    count = bench.large_elements
    a, b, c = (torch.ones(count, device=bench.device) for _ in range(3))
    return {
        "copy_bytes_per_s": 2 * 4 * count / bench.best_ns(lambda: a.copy_(b)) * 1e9,
        "triad_bytes_per_s": 3 * 4 * count / bench.best_ns(lambda: torch.add(b, c, alpha=3.0, out=a)) * 1e9,
        "array_bytes": 4 * count,
    }


def matmul_sizes(bench: RooflineBench) -> Fields:
    """FLOP/s of square matmuls against their size, for each dtype that the device multiplies well."""
    return {"matmul": [point for dtype in _dtypes(bench) for point in _curve(bench, dtype)]}


def _dtypes(bench: RooflineBench) -> list[str]:
    if bench.on_cpu:
        return ["float32", "bfloat16"]
    half = ["float16"] + (["bfloat16"] if torch.cuda.is_bf16_supported() else [])
    return ["float32", "tf32", *half]


def _curve(bench: RooflineBench, dtype: str) -> Iterator[DtypeMatmul]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    kind = torch.float32 if dtype == "tf32" else getattr(torch, dtype)
    try:
        for n in SIZES_CPU if bench.on_cpu else SIZES_GPU:
            if bench.effort < 1 and n > 256:
                return
            left, right = (torch.randn(n, n, device=bench.device).to(kind) for _ in range(2))
            out = torch.empty_like(left)
            ns = bench.best_ns(lambda words=(left, right), out=out: torch.mm(*words, out=out), MATMUL_S)  # type: ignore[misc]
            yield DtypeMatmul(dtype=dtype, n=n, flops=2 * n**3 / ns * 1e9)
            if ns > LONGEST_NS:
                return
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
