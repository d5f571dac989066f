"""Fewer bits in matrix products: TF32 on a GPU, bfloat16 inside float32 products, bfloat16 autocast.

All of them change the training a little; none is tried unless that class is allowed. The flags are torch's
old ones: they can't be read, and nothing is set, where a script uses `fp32_precision`.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from types import ModuleType
from typing import cast

from ...live_torch.live_job import Job
from ...live_torch.module_call_slot import Call
from ...live_torch.torch_types import Module
from ..model_calls.call_layers import (
    Rank,
    autocast_states,
    device_types,
    lead_through,
    needs_cuda,
    trained_roots,
)
from ..registry import Option, Refused, Undo, remedy, switch

MATMUL = "precision.float32_matmul"


_rougher = partial(remedy, reach="live", cls="changes-training")


@_rougher(
    "precision.tf32",
    treats=("compute",),
    doc="Let tensor cores multiply float32 matrices and convolutions with 10 bits of mantissa.",
    targets=(MATMUL,),
    needs=("cuda",),
    unproven=True,
)
def tf32(job: Job, options: Mapping[str, object]) -> Undo:
    needs_cuda(job)
    torch, cudnn = job.torch, job.torch.backends.cudnn
    if torch.cuda.get_device_capability()[0] < 8:
        raise Refused("the GPU has no TF32: it came with compute capability 8.0")
    if torch.get_float32_matmul_precision() != "highest" and cudnn.allow_tf32:
        raise Refused("the job allows TF32 already")
    with ExitStack() as undo:
        undo.callback(_products(torch, "high"))
        undo.callback(
            switch(lambda: cudnn.allow_tf32, lambda allow: setattr(cudnn, "allow_tf32", allow), True)
        )
        return undo.pop_all().close


@_rougher(
    "precision.float32_matmul_precision",
    treats=("compute",),
    doc="Compute float32 matrix products with bfloat16 inside, where the processor has instructions for it.",
    targets=(MATMUL,),
    options=(
        Option(
            name="precision",
            kind="choice",
            default="medium",
            choices=("high", "medium"),
            doc="As in torch.set_float32_matmul_precision.",
        ),
    ),
)
def float32_matmul_precision(job: Job, options: Mapping[str, object]) -> Undo:
    torch, wanted = job.torch, str(options.get("precision", "medium"))
    if torch.get_float32_matmul_precision() == wanted:
        raise Refused(f"the job sets it to {wanted} already")
    return _products(torch, wanted)


def _products(torch: ModuleType, wanted: str) -> Undo:
    """Set the precision of float32 products; with it go torch's newer values, and come back with it."""
    both = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
    places = [each for each in both if hasattr(each, "fp32_precision")]

    def read() -> tuple[str, ...]:
        return (torch.get_float32_matmul_precision(), *(each.fp32_precision for each in places))

    def write(values: tuple[str, ...]) -> None:
        flag, *own = values
        torch.set_float32_matmul_precision(flag)
        for place, value in zip(places, own, strict=False):
            place.fp32_precision = value

    only: tuple[str, ...] = (wanted,)
    return switch(read, write, only)


@remedy(
    "precision.autocast_bf16",
    treats=("compute", "memory"),
    reach="relaunch",  # a live job would die on an operator that does not take bfloat16
    cls="changes-training",
    doc="Train with bfloat16 matrix products and convolutions; parameters, loss, evaluation stay float32.",
    targets=("precision.autocast",),
)
def autocast_bf16(job: Job, options: Mapping[str, object]) -> Undo:
    torch, roots = job.torch, trained_roots(job)
    devices = device_types(roots)
    if len(devices) > 1:
        raise Refused(f"the parameters are on {' and '.join(sorted(devices))}")
    (device,) = devices
    if device == "cuda" and not torch.cuda.is_bf16_supported():
        raise Refused("the GPU has no bfloat16")
    if any(each.dtype in (torch.float16, torch.bfloat16) for root in roots for each in root.parameters()):
        raise Refused("parameters are in half precision already")
    if any(autocast_states(torch)()):
        raise Refused("autocast is on already")
    with ExitStack() as undo:
        for root in roots:
            undo.callback(
                lead_through(root, Rank.PRECISION, partial(_autocast, torch, device, weakref.ref(root)))
            )
        return undo.pop_all().close


def _autocast(torch: ModuleType, device: str, module: weakref.ref[Module], below: Call) -> Call:
    """The layer: bfloat16 in training, float32 again outside, where losses are made."""
    half, states = torch.bfloat16, autocast_states(torch)

    def in_full(leaf: object) -> object:
        return leaf.float() if isinstance(leaf, torch.Tensor) and leaf.dtype == half else leaf

    def call(*args: object, **kwargs: object) -> object:
        trains = torch.is_grad_enabled() and cast(Module, module()).training
        if not trains or any(states()):  # the job's own autocast, around this call
            return below(*args, **kwargs)
        with torch.autocast(device, dtype=half):
            out = below(*args, **kwargs)
        return torch.utils._pytree.tree_map(in_full, out)

    return call
