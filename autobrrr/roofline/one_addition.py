"""Where the time of one addition of two one-element tensors goes, from differences of variants.

Each box is the time of a variant with a layer less one without it; all variants are measured in turn,
the best of many rounds counts, and a difference below nothing is drawn as nothing.
"""

from __future__ import annotations

import torch

from autobrrr.roofline.roofline_bench import Fields, RooflineBench
from autobrrr.roofline.roofline_records import FlameBox

COUNT = 4_000
BATCH = 200  # tensors of one foreach call: its loop over them runs in C++
LONG = 4_096  # elements: still in the first cache


def flame(bench: RooflineBench) -> Fields:
    """On a device the host's part only: the kernel runs beside it."""
    empty = bench.statement_ns("pass", {}, COUNT)
    plain = {name: torch.ones(1, device=bench.device) for name in "ab"}
    wanted = {**plain, "a": torch.ones(1, device=bench.device, requires_grad=True)}
    recorded_ns = bench.statement_ns("a + b", wanted, COUNT) - empty
    plain_ns = bench.statement_ns("a + b", plain, COUNT) - empty
    with torch.inference_mode():
        bare = {name: torch.ones(1, device=bench.device) for name in "ab"}
        bare_ns = bench.statement_ns("a + b", bare, COUNT) - empty
    python_ns = max(bench.statement_ns("a + b", {"a": 1.5, "b": 2.5}, COUNT) - empty, 0.0)
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
        one = {name: [torch.ones(1) for _ in range(BATCH)] for name in "ab"}
        none = {name: [torch.ones(0) for _ in range(BATCH)] for name in "ab"}
        add, add_ = torch._foreach_add, torch._foreach_add_
        allocating, in_place, empty = (
            bench.statement_ns("add(a, b)", {**names, "add": call}, COUNT // BATCH) / BATCH
            for names, call in ((one, add), (one, add_), (none, add_))
        )
        short, long = ({name: torch.ones(count) for name in "ab"} for count in (1, LONG))
        longer_ns = bench.statement_ns("a.add_(b)", long, COUNT) - bench.statement_ns(
            "a.add_(b)", short, COUNT
        )
    kernel = max(in_place - empty, 0.0)
    addition = min(max(longer_ns / (LONG - 1), 0.0), kernel)
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
