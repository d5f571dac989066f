"""Where the time of one addition of two one-element tensors goes, from differences of variants.

Each box is the time of a variant with a layer less one without it; all variants are measured in turn,
the best of many rounds counts, and a difference below nothing is drawn as nothing.
"""

from __future__ import annotations

import msgspec
import torch

from autobrrr.roofline.roofline_bench import RooflineBench
from autobrrr.roofline.roofline_records import FlameBox, Roofline

COUNT = 4_000
BATCH = 200  # tensors of one foreach call: its loop over them runs in C++
LONG = 4_096  # elements: still in the first cache


def measure(bench: RooflineBench, so_far: Roofline) -> Roofline:
    return msgspec.structs.replace(so_far, flame=_cpu(bench) if bench.on_cpu else _device(bench))


def _cpu(bench: RooflineBench) -> FlameBox:
    recorded, plain, inference = _additions(bench)
    python = _python_ns(bench)
    allocating, in_place, empty = _below_python(bench)
    kernel = max(in_place - empty, 0.0)
    arithmetic = min(_arithmetic_ns(bench), kernel)
    below = FlameBox(
        name="dispatcher and kernel",
        ns=min(allocating, inference),
        how="foreach over many tensors, each: no Python between them",
        parts=[
            _box("allocate the result", allocating - in_place, "foreach add less add in place"),
            _box("dispatch, shapes, types", empty, "add in place of no element"),
            FlameBox(
                name="kernel",
                ns=kernel,
                how="one element less none",
                parts=[_box("the addition", arithmetic, "slope over 4096 elements")],
            ),
        ],
    )
    return FlameBox(
        name="a + b, one element, gradient wanted",
        ns=recorded,
        how="timed in a loop; the loop's own share taken off",
        parts=[
            _box("record for backward", recorded - plain, "with requires_grad less without"),
            _box("autograd's layers", plain - inference, "plain tensors less inference tensors"),
            _box("Python bytecode", python, "addition of two Python floats"),
            _box("arguments and result", inference - python - below.ns, "what is left above the dispatcher"),
            below,
        ],
    )


def _device(bench: RooflineBench) -> FlameBox:
    """The host's part only: the kernel runs beside it."""
    recorded, plain, inference = _additions(bench)
    python = _python_ns(bench)
    return FlameBox(
        name="a + b, one element, gradient wanted: the host's part",
        ns=recorded,
        how="timed in a loop; the loop's own share taken off",
        parts=[
            _box("record for backward", recorded - plain, "with requires_grad less without"),
            _box("autograd's layers", plain - inference, "plain tensors less inference tensors"),
            _box("Python bytecode", python, "addition of two Python floats"),
            _box("arguments, dispatch, launch", inference - python, "what is left"),
        ],
    )


def _additions(bench: RooflineBench) -> tuple[float, float, float]:
    """a + b with a gradient recorded, without one, and between inference tensors."""
    plain = {name: torch.ones(1, device=bench.device) for name in "ab"}
    recorded = {**plain, "a": torch.ones(1, device=bench.device, requires_grad=True)}
    empty = bench.statement_ns("pass", {}, COUNT)
    with_graph = bench.statement_ns("a + b", recorded, COUNT) - empty
    without = bench.statement_ns("a + b", plain, COUNT) - empty
    with torch.inference_mode():
        bare = {name: torch.ones(1, device=bench.device) for name in "ab"}
        inference = bench.statement_ns("a + b", bare, COUNT) - empty
    return with_graph, without, inference


def _python_ns(bench: RooflineBench) -> float:
    empty = bench.statement_ns("pass", {}, COUNT)
    return max(bench.statement_ns("a + b", {"a": 1.5, "b": 2.5}, COUNT) - empty, 0.0)


def _below_python(bench: RooflineBench) -> tuple[float, float, float]:
    """Each of many tensors in one foreach call: add, add in place, add in place of no element."""
    with torch.inference_mode():
        one = {name: [torch.ones(1) for _ in range(BATCH)] for name in "ab"}
        none = {name: [torch.ones(0) for _ in range(BATCH)] for name in "ab"}
        add, add_ = torch._foreach_add, torch._foreach_add_
        count = COUNT // BATCH
        timed = (
            bench.statement_ns("add(a, b)", {**one, "add": add}, count),
            bench.statement_ns("add(a, b)", {**one, "add": add_}, count),
            bench.statement_ns("add(a, b)", {**none, "add": add_}, count),
        )
    allocating, in_place, empty = (ns / BATCH for ns in timed)
    return allocating, in_place, empty


def _arithmetic_ns(bench: RooflineBench) -> float:
    """What one more element costs, where its data are at hand."""
    with torch.inference_mode():
        short = {"a": torch.ones(1), "b": torch.ones(1)}
        long = {"a": torch.ones(LONG), "b": torch.ones(LONG)}
        difference = bench.statement_ns("a.add_(b)", long, COUNT) - bench.statement_ns(
            "a.add_(b)", short, COUNT
        )
    return max(difference / (LONG - 1), 0.0)


def _box(name: str, ns: float, how: str) -> FlameBox:
    return FlameBox(name=name, ns=max(ns, 0.0), how=how)
