"""`optimizer.foreach`: the optimizer's operators on lists of tensors instead of one tensor each.

Fewer calls and launches for many small parameters, at the price of temporary memory of the size of
the parameters. torch does so by itself on a GPU; on a CPU it does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import cast

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

# Compared over 100 steps, with every option: the same bits on a CPU in float32 and float64. The rest, and
# half precision in all of them, round differently in some operator.
SAME_BITS = ("AdamW", "Adam", "SGD", "RMSprop", "Adagrad", "Adadelta", "Adamax", "Rprop")
CLASSES = (*SAME_BITS, "NAdam", "RAdam", "ASGD")


def _class_for(job: Job) -> str:
    for optimizer in job.optimizers:
        if base_class(job.torch, optimizer, CLASSES) not in SAME_BITS:
            return "rounding"
        for parameter in parameters(cast(Optimizer, optimizer)):
            full = parameter.dtype in (job.torch.float32, job.torch.float64)
            if not full or parameter.device.type != "cpu":
                return "rounding"
    return "bitwise"


@remedy(
    "optimizer.foreach",
    treats=("overhead",),
    reach="live",
    cls="bitwise",
    doc="Update parameters as lists of tensors: fewer operator calls for many small parameters.",
    targets=(IMPLEMENTATION,),
    class_for=_class_for,
    takes=lambda job: 2 * parameter_bytes(job),  # two lists of temporaries
)
def foreach(job: Job, options: Mapping[str, object]) -> Undo:
    refuse_sparse_modules(job.roots)
    return switch(job.torch, fitting_optimizers(job, _check), {"foreach": True})


def _check(torch: ModuleType, optimizer: Optimizer) -> None:
    name = base_class(torch, optimizer, CLASSES)
    if name is None or "foreach" not in optimizer.defaults:
        raise Refused("torch has no foreach implementation of it")
    groups = optimizer.param_groups
    if all(group.get("foreach") for group in groups):
        raise Refused("foreach already")
    if any(group.get("fused") for group in groups):
        raise Refused("fused is on, which is faster")
    refuse_unusual(torch, optimizer)
    devices = {each.device.type for each in parameters(optimizer)}
    unset = all(group.get("foreach") is None for group in groups)
    if unset and devices and devices <= _devices_by_default(torch):
        raise Refused("torch does it by itself on this device")
    if not devices <= {"cpu"} | _devices_by_default(torch):
        raise Refused(f"no foreach kernels on {', '.join(sorted(devices))}")
    step_on_scratch(torch, name, optimizer, {"foreach": True})


def _devices_by_default(torch: ModuleType) -> set[str]:
    found = getattr(torch.utils, "_foreach_utils", None)
    listed = getattr(found, "_get_foreach_kernels_supported_devices", None)
    return set(listed()) if listed is not None else {"cuda"}
