"""`optimizer.foreach`: the optimizer's operators on lists of tensors instead of one tensor each.

Fewer calls for many small parameters, at the price of temporary memory of the size of the parameters. torch
does so by itself on a GPU; on a CPU it does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from ...live_torch.live_job import Job
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
    return switch(job.torch, fitting_optimizers(job, _check), {"foreach": True})


def _check(torch: ModuleType, optimizer: Optimizer) -> None:
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
