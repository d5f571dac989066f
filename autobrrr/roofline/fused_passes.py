"""Passes over an array that torch.compile fuses: how much arithmetic is free beside the memory traffic."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch.nn import functional

from autobrrr.roofline.roofline_bench import Fields, NoCompiler, RooflineBench, first_call
from autobrrr.roofline.roofline_records import Activations, Fusion, MultiplyAdd, SweepPoint

REPEATS = (1, 4, 8, 16, 32, 64, 256)
CHAINS, STEPS = 8, 16  # eight independent chains hide the latency of each step
CACHED_ON_CPU, CACHED_ON_GPU = 1 << 17, 1 << 22  # elements: two arrays of 512 KiB; of 16 MiB
CONTRACT = "cpp.enable_floating_point_contract_flag"

Pointwise = Callable[[torch.Tensor], torch.Tensor]
Pass = Callable[[], object]


def repeat_sweep(bench: RooflineBench) -> Fields:
    """`repeat` multiplications of each element of a large array.

    More of them raise the arithmetic intensity and leave the bytes alone: the runtime stays flat until the
    ridge point. Bytes are one read and one write an element, FLOPs are N * repeat. Raises NoCompiler.
    """
    count = bench.large_elements
    x = torch.ones(count, device=bench.device)
    points = []
    for repeat in REPEATS:

        def doubled(y: torch.Tensor, repeat: int = repeat) -> torch.Tensor:
            for _ in range(repeat):
                y = y * 2
            return y

        ns = _fused_ns(bench, doubled, x)
        flops, bytes_per_s = count * repeat / ns * 1e9, 2 * 4 * count / ns * 1e9
        points.append(SweepPoint(repeat=repeat, runtime_ns=ns, flops=flops, bytes_per_s=bytes_per_s))
    return {"sweep": points}


def multiply_add(bench: RooflineBench) -> Fields:
    """Peak of the vector units on data in cache: multiplications alone, and fused multiply-adds.

    A data sheet counts a fused multiply-add as two operations: code without additions to fuse reaches half
    of it at best. Raises NoCompiler.
    """
    operations = CHAINS * STEPS
    return {
        "multiply_add": MultiplyAdd(
            multiply_flops=_flops(bench, lambda y: y * 1.0001, operations),
            multiply_add_flops=_flops(bench, lambda y: y * 0.9999 + 0.0001, 2 * operations),
        )
    }


def _flops(bench: RooflineBench, step: Pointwise, operations: int) -> float:
    def chains(x: torch.Tensor) -> torch.Tensor:
        total = x
        for chain in range(CHAINS):
            y = x + float(chain + 1)
            for _ in range(STEPS):
                y = step(y)
            total = total + y
        return total

    x = torch.rand(CACHED_ON_CPU if bench.on_cpu else CACHED_ON_GPU, device=bench.device)
    with _contraction():
        ns = _fused_ns(bench, chains, x)
    extra = 2 * CHAINS  # what starts a chain and what adds it up
    return (operations + extra) * int(x.numel()) / ns * 1e9


def _contraction() -> AbstractContextManager[None]:
    """Lets the C++ compiler fuse; the flag is a word in newer versions of torch, a boolean before."""
    from torch._inductor import config

    flag = config.cpp.enable_floating_point_contract_flag
    patch: AbstractContextManager[None] = config.patch({CONTRACT: True if isinstance(flag, bool) else "fast"})
    return patch


def cosine_fusion(bench: RooflineBench) -> Fields:
    """x.cos().cos(): two passes over memory, or one that a compiler fused, against a single cosine.

    Where memory is the limit fusing doubles the speed, and the second cosine is free. A cosine may be too
    heavy for that on a CPU: a pair of light operations shows what fusing itself gives. Raises NoCompiler.
    """
    x = torch.rand(bench.large_elements, device=bench.device)
    single_ns, unfused_ns, fused_ns = _pair(bench, x, torch.cos, torch.cos)
    _, light_unfused_ns, light_fused_ns = _pair(bench, x, lambda y: y * 2, lambda y: y + 1)
    return {
        "fusion": Fusion(
            unfused_ns=unfused_ns,
            fused_ns=fused_ns,
            ratio=unfused_ns / fused_ns,
            single_ns=single_ns,
            light_unfused_ns=light_unfused_ns,
            light_fused_ns=light_fused_ns,
            light_ratio=light_unfused_ns / light_fused_ns,
        )
    }


def _pair(bench: RooflineBench, x: torch.Tensor, first: Pointwise, second: Pointwise) -> tuple[int, int, int]:
    """Nanoseconds of the first alone, of one after the other, and of both fused.

    All are compiled, so that only the fusion differs and not the code of the operations.
    """
    between = torch.zeros_like(x)
    one, other = _pass(bench, first, x, between), _pass(bench, second, between)
    both = _pass(bench, lambda y: second(first(y)), x)
    for each in (one, other, both):  # when all are made: to make one forgets what was compiled before
        first_call(each)
    return bench.best_ns(one), bench.best_ns(lambda: (one(), other())), bench.best_ns(both)


def activations(bench: RooflineBench) -> Fields:
    """gelu against relu: many operations an element against one, and the same bytes.

    Where memory is the limit they cost the same. Without a compiler the eager kernels are compared.
    """
    x, compiled = torch.randn(bench.large_elements, device=bench.device), True
    try:
        relu_ns, gelu_ns = (_fused_ns(bench, each, x) for each in (functional.relu, functional.gelu))
    except NoCompiler:
        compiled = False
        relu_ns, gelu_ns = (
            bench.best_ns(lambda: functional.relu(x)),
            bench.best_ns(lambda: functional.gelu(x)),
        )
    found = Activations(relu_ns=relu_ns, gelu_ns=gelu_ns, ratio=gelu_ns / relu_ns, compiled=compiled)
    return {"activations": found}


def _fused_ns(bench: RooflineBench, function: Pointwise, x: torch.Tensor) -> int:
    """Raises NoCompiler."""
    fused = _pass(bench, function, x)
    first_call(fused)
    return bench.best_ns(fused)


def _pass(
    bench: RooflineBench, function: Pointwise, x: torch.Tensor, out: torch.Tensor | None = None
) -> Pass:
    """A pass over an array, into memory that is there: fresh pages would cost more than the pass."""

    def into(x: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(function(x))

    compiled, place = bench.compiled(into), torch.zeros_like(x) if out is None else out
    return lambda: compiled(x, place)
