"""What Python, torch, memory and matmul units do in a second, without a compiler.

Also where the time of one addition of two one-element tensors goes, from differences of variants: each box
is the time of a variant with a layer less one without it; all variants are measured in turn, the best of
many rounds counts, and a difference below nothing is drawn as nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from autobrrr.roofline.roofline_bench import Fields, RooflineBench
from autobrrr.roofline.roofline_records import DtypeMatmul, FlameBox, LaunchCost

PYTHON_ADDS, TORCH_OPS = 200_000, 20_000
LAUNCHES = 2_000  # more would fill the device's queue, and the host would wait for its place
SIZES_CPU = (16, 32, 64, 128, 256, 512, 1024, 2048)
SIZES_GPU = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
MATMUL_S = 0.12
FLAME_COUNT = 4_000
FLAME_BATCH = 200  # tensors of one foreach call: its loop over them runs in C++
FLAME_LONG = 4_096  # elements: still in the first cache
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


def flame(bench: RooflineBench) -> Fields:
    """On a device the host's part only: the kernel runs beside it."""
    empty = bench.statement_ns("pass", {}, FLAME_COUNT)
    plain = {name: torch.ones(1, device=bench.device) for name in "ab"}
    wanted = {**plain, "a": torch.ones(1, device=bench.device, requires_grad=True)}
    recorded_ns = bench.statement_ns("a + b", wanted, FLAME_COUNT) - empty
    plain_ns = bench.statement_ns("a + b", plain, FLAME_COUNT) - empty
    with torch.inference_mode():
        bare = {name: torch.ones(1, device=bench.device) for name in "ab"}
        bare_ns = bench.statement_ns("a + b", bare, FLAME_COUNT) - empty
    python_ns = max(bench.statement_ns("a + b", {"a": 1.5, "b": 2.5}, FLAME_COUNT) - empty, 0.0)
    if bench.on_cpu:
        below = _below_python(bench, bare_ns)
        left = "what is left above the dispatcher"
        rest = [_box("arguments and result", bare_ns - python_ns - below.ns, left), below]
    else:
        rest = [_box("arguments, dispatch, launch", bare_ns - python_ns, "what is left")]
    whole = FlameBox(
        name="a + b, one element, gradient wanted" + ("" if bench.on_cpu else ": the host's part"),
        ns=recorded_ns,
        how="timed in a loop; the loop's own share taken off",
        parts=[
            _box("record for backward", recorded_ns - plain_ns, "with requires_grad less without"),
            _box("autograd's layers", plain_ns - bare_ns, "plain tensors less inference tensors"),
            _box("Python bytecode", python_ns, "addition of two Python floats"),
            *rest,
        ],
    )
    return {"flame": whole}


def _below_python(bench: RooflineBench, most_ns: float) -> FlameBox:
    """Each of many tensors in one foreach call: add, add in place, add in place of no element."""
    with torch.inference_mode():
        one = {name: [torch.ones(1) for _ in range(FLAME_BATCH)] for name in "ab"}
        none = {name: [torch.ones(0) for _ in range(FLAME_BATCH)] for name in "ab"}
        add, add_ = torch._foreach_add, torch._foreach_add_
        allocating, in_place, empty = (
            bench.statement_ns("add(a, b)", {**names, "add": call}, FLAME_COUNT // FLAME_BATCH) / FLAME_BATCH
            for names, call in ((one, add), (one, add_), (none, add_))
        )
        short, long = ({name: torch.ones(count) for name in "ab"} for count in (1, FLAME_LONG))
        longer_ns = bench.statement_ns("a.add_(b)", long, FLAME_COUNT) - bench.statement_ns(
            "a.add_(b)", short, FLAME_COUNT
        )
    kernel = max(in_place - empty, 0.0)
    addition = min(max(longer_ns / (FLAME_LONG - 1), 0.0), kernel)
    return FlameBox(
        name="dispatcher and kernel",
        ns=min(allocating, most_ns),
        how="foreach over many tensors, each: no Python between them",
        parts=[
            _box("allocate the result", allocating - in_place, "foreach add less add in place"),
            _box("dispatch, shapes, types", empty, "add in place of no element"),
            FlameBox(
                name="kernel",
                ns=kernel,
                how="one element less none",
                parts=[_box("the addition", addition, "slope over 4096 elements")],
            ),
        ],
    )


def _box(name: str, ns: float, how: str) -> FlameBox:
    return FlameBox(name=name, ns=max(ns, 0.0), how=how)
