"""Fewer bits in matrix products: TF32 on a GPU, bfloat16 inside float32 products, bfloat16 autocast.

All of them change the training a little; none is tried unless that class is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from types import ModuleType

from ...live_torch.live_job import Job
from ...live_torch.torch_types import Module, Tensor
from ..model_calls.call_layers import (
    Call,
    Rank,
    autocast_states,
    device_types,
    lead_through,
    needs_cuda,
    trained_roots,
)
from ..model_calls.call_results import map_tensors, refuse_unseen
from ..model_calls.compiled_call import CallsWatch, CompiledCall
from ..model_calls.rehearsal import Rehearsal, Wording
from ..registry import Option, Refused, Undo, WatchedUndo, remedy
from .float32_settings import Float32Settings

MATMUL = "precision.float32_matmul"
SIZE = 256  # of the product that shows whether a setting has any effect


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
    torch = job.torch
    if torch.cuda.get_device_capability()[0] < 8:
        raise Refused("the GPU has no TF32: it came with compute capability 8.0")
    settings = Float32Settings(torch)
    if settings.multiplies_in_tf32() and settings.convolutions() is not False:
        raise Refused("the job allows TF32 already")
    return settings.allow_tf32()


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
    settings = Float32Settings(torch)
    if settings.matmul() == wanted:
        raise Refused(f"the job sets it to {wanted} already")
    devices = device_types(trained_roots(job))
    with ExitStack() as undo:
        undo.callback(settings.set_matmul("highest"))
        exact = [_product(torch, device) for device in sorted(devices)]
    with ExitStack() as undo:
        undo.callback(settings.set_matmul(wanted))
        rough = [_product(torch, device) for device in sorted(devices)]
        if all(map(torch.equal, exact, rough)):
            raise Refused(f"{wanted} changes no float32 product on this {'/'.join(sorted(devices))}")
        return undo.pop_all().close


def _product(torch: ModuleType, device: str) -> object:
    """A product whose exact result needs more bits than bfloat16 and TF32 have."""
    with torch.no_grad():
        line = torch.arange(SIZE * SIZE, dtype=torch.float32, device=device)
        matrix = line.mul_(0.7311).sin_().reshape(SIZE, SIZE)
        return matrix @ matrix


@_rougher(
    "precision.autocast_bf16",
    treats=("compute", "memory"),
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
    refuse_half(torch, roots)
    calls: list[CompiledCall] = []
    layers = [_autocast(torch, root, device, calls) for root in roots]
    with ExitStack() as undo:
        for root, layer in zip(roots, layers, strict=True):
            undo.callback(lead_through(root, Rank.PRECISION, layer))
        applied = undo.pop_all()
    watch = CallsWatch(calls)
    return WatchedUndo(applied.close, watch.trouble, times=watch.times)


def refuse_half(torch: ModuleType, roots: list[Module]) -> None:
    """Refuse what is in half precision, or under autocast.

    Raises:
        Refused: it is.
    """
    if any(each.dtype in (torch.float16, torch.bfloat16) for root in roots for each in root.parameters()):
        raise Refused("parameters are in half precision already")
    if any(autocast_states(torch)()):
        raise Refused("autocast is on already")


class InBfloat16(Rehearsal):
    """Rehearses a module's call: forward and backward run to their end, and twice to the same."""

    def why_not(
        self, eager: Call, compiled: Call, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> str | None:
        """A reason not to call the module so; None where all is well."""
        why = super().why_not(compiled, compiled, args, kwargs)
        return None if why is None else f"bfloat16 does not fit this model: {why}"


def _autocast(
    torch: ModuleType, module: Module, device: str, calls: list[CompiledCall]
) -> Callable[[Call], Call]:
    """The layer: bfloat16 in training once that was rehearsed, float32 again outside, where losses are made.

    Args:
        calls: Takes what is to be watched.
    """
    half = torch.bfloat16
    states = autocast_states(torch)
    rehearsal = InBfloat16(torch, module, own_stream=False, wording=Wording("it fails: ", ""))

    def in_full(each: Tensor) -> object:
        return each.to(device=each.device, dtype=torch.float32) if each.dtype == half else each

    def layer(below: Call) -> Call:
        def rough(*args: object, **kwargs: object) -> object:
            refuse_unseen(torch, (args, kwargs))
            with torch.autocast(device, dtype=half):
                out = below(*args, **kwargs)
            return map_tensors(torch, out, in_full)

        calls.append(CompiledCall(rehearsal, rough, dynamic=True))
        rehearsed = calls[-1].layer(below)

        def call(*args: object, **kwargs: object) -> object:
            own = any(states())  # the job's, around this call
            return below(*args, **kwargs) if own else rehearsed(*args, **kwargs)

        return call

    return layer
