"""`optimizer.foreach`: the update's operators on lists of tensors; `optimizer.fused`: one kernel for all.

The first means fewer calls for many small parameters, at the price of temporary memory of the size of the
parameters. torch does so by itself on a GPU; on a CPU it does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import cast

from ...live_torch.live_job import Job
from ...live_torch.torch_types import Tensor
from ..device_headroom import parameter_bytes
from ..registry import Refused, Undo, remedy
from .optimizer_flags import (
    IMPLEMENTATION,
    Optimizer,
    base_class,
    fitting_optimizers,
    parameters,
    refuse_sparse_modules,
    refuse_unusual,
    step_on_scratch,
    switch,
)

# Compared over 100 steps, with every option: the same bits on a CPU in float32 and float64. Others, and half
# precision in all of them, round differently in some operator.
SAME_BITS = ("AdamW", "Adam", "SGD", "RMSprop", "Adagrad", "Adadelta", "Adamax", "Rprop")
FUSED = ("AdamW", "Adam", "SGD", "Adagrad")
IN_ANOTHER_ORDER = "a gradient or state lies in memory in another order than its parameter"


@remedy(
    "optimizer.foreach",
    treats=("overhead",),
    reach="live",
    cls="bitwise",
    doc="Update parameters as lists of tensors: fewer operator calls for many small parameters.",
    targets=(IMPLEMENTATION,),
    takes=lambda job: 2 * parameter_bytes(job),  # two lists of temporaries
)
def foreach(job: Job, options: Mapping[str, object]) -> Undo:
    refuse_sparse_modules(job.roots)
    return switch(job.torch, fitting_optimizers(job, _check_foreach), {"foreach": True})


def _check_foreach(torch: ModuleType, optimizer: Optimizer) -> None:
    name = base_class(torch, optimizer, SAME_BITS)
    if name is None:
        raise Refused("torch has no foreach implementation of it that keeps the bits")
    if all(group.get("foreach") for group in optimizer.param_groups):
        raise Refused("foreach already")
    if any(group.get("fused") for group in optimizer.param_groups):
        raise Refused("fused is on, which is faster")
    refuse_unusual(torch, optimizer)
    for each in parameters(optimizer):
        if each.device.type != "cpu" or each.dtype not in (torch.float32, torch.float64):
            raise Refused("it keeps the bits in full precision on a CPU only (on a GPU torch does it)")
    step_on_scratch(torch, name, optimizer, {"foreach": True})


@remedy(
    "optimizer.fused",
    treats=("overhead", "memory"),
    reach="live",
    cls="rounding",
    doc="Update all parameters in one fused kernel instead of several operators for each tensor.",
    targets=(IMPLEMENTATION,),
)
def fused(job: Job, options: Mapping[str, object]) -> Undo:
    refuse_sparse_modules(job.roots)
    return switch(job.torch, fitting_optimizers(job, _check_fused), {"fused": True, "foreach": False})


def _check_fused(torch: ModuleType, optimizer: Optimizer) -> None:
    name = base_class(torch, optimizer, FUSED)
    if name is None or "fused" not in optimizer.defaults:
        raise Refused("torch has no fused kernel for it")
    if all(group.get("fused") for group in optimizer.param_groups):
        raise Refused("fused already")
    refuse_unusual(torch, optimizer)
    for parameter in parameters(optimizer):
        state = optimizer.state.get(parameter, {})
        if "step" in state and not isinstance(state["step"], torch.Tensor):
            raise Refused("its state holds step counts as plain numbers")  # of a very old checkpoint
        _refuse_other_orders(torch, parameter, [parameter.grad, *state.values()])
    step_on_scratch(torch, name, optimizer, {"fused": True})


def _refuse_other_orders(torch: ModuleType, parameter: Tensor, beside: Iterable[object]) -> None:
    """Refuse what the kernels, which read all tensors as flat memory, would mix up.

    Raises:
        Refused: a parameter with gaps in memory, or a gradient or state with other strides.
    """
    span = 1
    for stride, size in sorted((stride, size) for size, stride in _order(parameter)):
        if stride != span:
            raise Refused("a parameter has gaps in memory, or overlaps with itself")
        span *= size
    for each in beside:
        alike = isinstance(each, torch.Tensor) and each.shape == parameter.shape
        if alike and _order(cast(Tensor, each)) != _order(parameter):
            raise Refused(IN_ANOTHER_ORDER)


def _order(tensor: Tensor) -> list[tuple[int, int]]:
    """Size and stride of each dimension that has more than one element."""
    return [(size, stride) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]
