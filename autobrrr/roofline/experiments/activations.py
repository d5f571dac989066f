"""gelu against relu: many operations an element against one, and the same bytes.

Where memory is the limit they cost the same. Without a compiler the eager kernels are compared.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import torch
from torch.nn import functional

from autobrrr.roofline.roofline_bench import NoCompiler, RooflineBench, first_call
from autobrrr.roofline.roofline_records import Activations, Roofline

Activation = Callable[[torch.Tensor], torch.Tensor]


def measure(bench: RooflineBench, so_far: Roofline) -> Roofline:
    x = torch.randn(bench.large_elements, device=bench.device)
    compiled = True
    try:
        relu_ns, gelu_ns = (_fused_ns(bench, each, x) for each in (functional.relu, functional.gelu))
    except NoCompiler:
        compiled = False
        relu_ns, gelu_ns = (_eager_ns(bench, each, x) for each in (functional.relu, functional.gelu))
    return msgspec.structs.replace(
        so_far,
        activations=Activations(relu_ns=relu_ns, gelu_ns=gelu_ns, ratio=gelu_ns / relu_ns, compiled=compiled),
    )


def _fused_ns(bench: RooflineBench, activation: Activation, x: torch.Tensor) -> int:
    def into(x: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(activation(x))

    out = torch.zeros_like(x)
    fused = bench.compiled(into)
    first_call(lambda: fused(x, out))
    return bench.best_ns(lambda: fused(x, out))


def _eager_ns(bench: RooflineBench, activation: Activation, x: torch.Tensor) -> int:
    with torch.no_grad():
        return bench.best_ns(lambda: activation(x))
