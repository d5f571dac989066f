"""Rates, and the rows and sentences that the terminal and the page of `roofline` share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autobrrr.quantities import NOT_MEASURED, digits, duration
from autobrrr.quantities import share as percent
from autobrrr.records.busy_words import takers_words
from autobrrr.records.gain_words import factor_words
from autobrrr.roofline.roofline_records import Roofline

SCALES = (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))
ITEM_BYTES = {"float64": 8, "float32": 4, "tf32": 4, "float16": 2, "bfloat16": 2}
SWEEP_BYTES = 8  # of an element of the repeated pass: read and written once, in fp32
VECTOR = "vector units, float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """How fast anything can be: by memory up to the ridge point, by computing beyond it."""

    name: str  # dtype of a matmul, or the vector units
    threads: int
    flops: float  # FLOP/s
    bytes_per_s: float

    @property
    def ridge(self) -> float:
        """FLOP/byte from which on memory is no longer the limit."""
        return self.flops / self.bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPoint:
    """A kernel that was measured, where it lies under the roofs."""

    name: str
    group: str  # a dtype, or "pointwise"
    intensity: float  # FLOP/byte
    flops: float  # FLOP/s


def roofs(found: Roofline) -> list[Roof]:
    """Every roof of every number of threads, where both of its limits were measured."""
    return [
        Roof(name=name, threads=run.threads, flops=flops, bytes_per_s=run.peak_bytes_per_s)
        for run in runs(found)
        if run.peak_bytes_per_s
        for name, flops in (*run.peak_flops.items(), (VECTOR, _vector(run, fused=True)))
        if flops
    ]


def box_time(ns: float) -> str:
    """One addition takes less than a nanosecond: that is the point of the picture."""
    return f"{ns:.2f} ns" if 0 < ns < 1 else duration(ns)


def under_roof(run: Roofline) -> list[KernelPoint]:
    """The kernels that were measured, with the bytes that they must move at least.

    A square matmul of n makes 2 n^3 FLOPs on three matrices of n^2 numbers.
    """
    swept = [
        KernelPoint(
            name=f"x * 2, {point.repeat} times",
            group="pointwise",
            intensity=point.repeat / SWEEP_BYTES,
            flops=point.flops,
        )
        for point in run.sweep
    ]
    return swept + [
        KernelPoint(
            name=f"matmul of {point.n}, {point.dtype}",
            group=point.dtype,
            intensity=2 * point.n / (3 * ITEM_BYTES[point.dtype]),
            flops=point.flops,
        )
        for point in run.matmul
        if point.dtype in ITEM_BYTES
    ]


def rate(value: float | None, unit: str) -> str:
    """Three digits, a prefix and a unit: 103 GFLOP/s."""
    if value is None:
        return NOT_MEASURED
    prefix, scale = next(((name, scale) for name, scale in SCALES if abs(value) >= scale), ("", 1.0))
    return f"{digits(value / scale)} {prefix}{unit}"


def rows(found: Roofline) -> Iterator[tuple[str, ...]]:
    """What the table says: a name, and the figure of each run; only what was measured in one of them."""
    figures = [_figures(run, tuple(found.peak_flops)) for run in runs(found)]
    for name in figures[0]:
        told = [each[name] for each in figures]
        if any(each != NOT_MEASURED for each in told):
            yield (name, *told)


def _figures(run: Roofline, dtypes: tuple[str, ...]) -> dict[str, str]:
    launch, fusion, gelu = run.launch, run.fusion, run.activations
    ridge = run.ridge_ops_per_element
    return {
        "Python additions": rate(run.python_adds_per_s, "/s"),
        "torch additions, one element": rate(run.torch_ops_per_s, "/s"),
        "kernel launch, queued": duration(launch.queued_ns if launch else None),
        "kernel launch, waited for": duration(launch.awaited_ns if launch else None),
        "memory, copy": rate(run.copy_bytes_per_s, "B/s"),
        "memory, triad": rate(run.triad_bytes_per_s, "B/s"),
        "vector units, multiplying": rate(_vector(run, fused=False), "FLOP/s"),
        "vector units, multiply-add": rate(_vector(run, fused=True), "FLOP/s"),
        **{f"matmul, {dtype}": rate(run.peak_flops.get(dtype), "FLOP/s") for dtype in dtypes},
        "ridge point, operations per element": NOT_MEASURED if ridge is None else digits(ridge),
        "FLOPs possible in a Python addition": rate(run.flops_per_python_add, ""),
        "speed-up of x.cos().cos(), fused": factor_words(fusion.ratio if fusion else None),
        "speed-up of x * 2 + 1, fused": factor_words(fusion.light_ratio if fusion else None),
        "time of gelu, that of relu being 1x": factor_words(gelu.ratio if gelu else None),
    }


def runs(found: Roofline) -> list[Roofline]:
    """One thread first, where there are several."""
    return [found.single_thread, found] if found.single_thread is not None else [found]


def spec_lines(found: Roofline) -> Iterator[str]:
    """What the maker promises beside what was reached."""
    spec = found.spec
    if spec is None:
        return
    best_half = max((found.peak_flops.get(name, 0.0) for name in ("float16", "bfloat16")), default=0.0)
    for words, promised, reached, unit in (
        ("memory", spec.bytes_per_s, found.peak_bytes_per_s, "B/s"),
        ("matmul at 16 bit", spec.half_flops, best_half or None, "FLOP/s"),
        ("matmul of fp32 input (TF32)", spec.tf32_flops, found.peak_flops.get("tf32"), "FLOP/s"),
        ("vector units at fp32", spec.fp32_flops, _vector(found, fused=True), "FLOP/s"),
    ):
        if reached is not None:
            sheet = f"{rate(promised, unit)} on the data sheet"
            yield f"{words}: {rate(reached, unit)} of {sheet} ({percent(reached / promised)})"


def sentences(found: Roofline) -> Iterator[str]:
    """What the figures mean."""
    ridge, peak = found.ridge_ops_per_element, max(found.peak_flops.values(), default=None)
    if ridge is not None:
        yield (
            f"A kernel that reads and writes each 32-bit number once is bound by memory until it makes about "
            f"{ridge:.0f} operations on it."
        )
    if found.python_adds_per_s and found.torch_ops_per_s and peak:
        in_python, in_torch = (
            rate(peak / each, "FLOPs") for each in (found.python_adds_per_s, found.torch_ops_per_s)
        )
        yield (
            f"In the time of one addition in Python this device could do {in_python}; "
            f"in that of adding two one-element tensors with torch, {in_torch}."
        )
    fusion = found.fusion
    if fusion is not None and fusion.ratio < 1.5 < fusion.light_ratio:
        yield (
            f"Fusing makes x * 2 + 1 {fusion.light_ratio:.2f}x as fast, x.cos().cos() {fusion.ratio:.2f}x: "
            "here the cosine itself, not memory, takes the time."
        )
    points = found.sweep
    if not found.is_disturbed and points and points[-1].flops < 0.7 * max(point.flops for point in points):
        yield (
            f"At {points[-1].repeat} repeats FLOP/s fall again: each multiplication waits for the one "
            "before it, and the chain is longer than the processor looks ahead."
        )
    if found.is_disturbed:
        who = takers_words(found.contention) if found.contention else ""
        yield (
            f"Others used the cores for {percent(found.waited_share)} of the time{f': {who}' if who else ''}."
            " The peaks may be too low, so they are not kept: measure again when the machine is quiet."
        )
    for name, why in found.left_out.items():
        yield f"Left out, {name.replace('_', ' ')}: {why}."


def _vector(run: Roofline, *, fused: bool) -> float | None:
    if run.multiply_add is None:
        return None
    return run.multiply_add.multiply_add_flops if fused else run.multiply_add.multiply_flops
