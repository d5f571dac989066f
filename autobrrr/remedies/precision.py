"""Fewer bits in matrix products: TF32 on a GPU, bfloat16 inside float32 products, bfloat16 autocast.

All of them change the training a little; none is tried unless that class is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING

from ..agent.shadow.trees import map_tree
from .module_call import Call, Rank, autocast_states, device_types, lead_through, needs_cuda, trained_roots
from .optimizers import undo_all
from .process_value import switch
from .registry import Option, Refused, Undo, remedy

if TYPE_CHECKING:
    from autobrrr.agent.job import Job

MATMUL = "precision.float32_matmul"
SIZE = 256  # of the product that shows whether a setting has any effect


@remedy(
    "precision.tf32",
    treats=("compute",),
    reach="live",
    cls="changes-training",
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
    if torch.get_float32_matmul_precision() != "highest" and torch.backends.cudnn.allow_tf32:
        raise Refused("the job allows TF32 already")
    undos = [_set_precision(torch, "high")]
    cudnn = torch.backends.cudnn
    if not cudnn.allow_tf32:
        undos.append(switch(lambda: cudnn.allow_tf32, lambda on: setattr(cudnn, "allow_tf32", on), True))
    return undo_all(undos)


@remedy(
    "precision.float32_matmul_precision",
    treats=("compute",),
    reach="live",
    cls="changes-training",
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
    devices = device_types(trained_roots(job))
    undo = _set_precision(torch, "highest")
    exact = [_product(torch, device) for device in sorted(devices)]
    undo()
    undo = _set_precision(torch, wanted)
    rough = [_product(torch, device) for device in sorted(devices)]
    if all(map(torch.equal, exact, rough)):
        undo()
        raise Refused(f"{wanted} changes no float32 product on this {'/'.join(sorted(devices))}")
    return undo


def _set_precision(torch: ModuleType, wanted: str) -> Undo:
    return switch(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, wanted)


def _product(torch: ModuleType, device: str) -> object:
    """A product whose exact result needs more bits than bfloat16 and TF32 have."""
    with torch.no_grad():
        line = torch.arange(SIZE * SIZE, dtype=torch.float32, device=device)
        matrix = line.mul_(0.7311).sin_().reshape(SIZE, SIZE)
        return matrix @ matrix


@remedy(
    "precision.autocast_bf16",
    treats=("compute", "memory"),
    reach="live",
    cls="changes-training",
    doc="Run the model's matrix products and convolutions in bfloat16; parameters and loss stay float32.",
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
    undos: list[Callable[[], None]] = []
    try:
        for root in roots:
            undos.append(lead_through(root, Rank.PRECISION, _autocast(torch, device)))
    except Refused:
        undo_all(undos)()
        raise
    return undo_all(undos)


def _autocast(torch: ModuleType, device: str) -> Callable[[Call], Call]:
    """The layer: bfloat16 inside the module, float32 again outside, where losses are computed."""
    half, full, tensor = torch.bfloat16, torch.float32, torch.Tensor
    states = autocast_states(torch)

    def in_full(leaf: object) -> object:
        return leaf.to(full) if isinstance(leaf, tensor) and leaf.dtype == half else leaf

    def layer(below: Call) -> Call:
        def call(*args: object, **kwargs: object) -> object:
            if any(states()):  # the job's own, around this call
                return below(*args, **kwargs)
            with torch.autocast(device, dtype=half):
                out = below(*args, **kwargs)
            return map_tree(out, in_full)

        return call

    return layer
