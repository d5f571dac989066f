"""`optimizer.fused`: the whole optimizer update in one kernel per device and dtype.

Before it is switched on, the same class takes one step on scratch parameters of the job's dtypes and
devices: a kernel that is missing in this build of torch is refused here, and never met by the training loop.
The kernels read weight, gradient and state as flat memory: all three must lie in it in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import cast

from ...live_torch.handler_errors import let_through
from ...live_torch.live_job import Job
from ...live_torch.torch_types import Tensor
from ..registry import Refused, Undo, remedy
from .optimizer_flags import (
    IMPLEMENTATION,
    IN_ANOTHER_ORDER,
    Optimizer,
    base_class,
    fitting_optimizers,
    in_same_order,
    order,
    parameters,
    refuse_sparse_modules,
    refuse_unusual,
)
from .optimizer_updates import choose, flags_of

CLASSES = ("AdamW", "Adam", "SGD", "Adagrad")
_REHEARSED: set[tuple[object, ...]] = set()  # a remedy is switched many times


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
    flags = {"fused": True, "foreach": False}
    return choose(job.torch, fitting_optimizers(job, _check), flags, exact_order=True)


def _check(torch: ModuleType, optimizer: Optimizer) -> None:
    name = base_class(torch, optimizer, CLASSES)
    if name is None or "fused" not in optimizer.defaults:
        raise Refused("torch has no fused kernel for it")
    if all(group.get("fused") for group in optimizer.param_groups) or flags_of(optimizer).get("fused"):
        raise Refused("fused already")
    refuse_unusual(torch, optimizer)
    for parameter in parameters(optimizer):
        # `step` of a parameter's state must be a tensor: it is a number in very old checkpoints.
        step = optimizer.state.get(parameter, {}).get("step")
        if step is not None and not isinstance(step, torch.Tensor):
            raise Refused("its state holds step counts as plain numbers")
        _refuse_other_orders(torch, parameter, [parameter.grad, *optimizer.state.get(parameter, {}).values()])
    _rehearse(torch, optimizer)


def _refuse_other_orders(torch: ModuleType, parameter: Tensor, beside: Iterable[object]) -> None:
    """Refuse where element `n` in memory is not the same one in all that an update reads.

    Raises:
        Refused: a parameter with gaps or overlaps, or a gradient or state in another order.
    """
    if not all(parameter.shape):
        return  # it has no elements
    span = 1
    for stride, size in sorted((stride, size) for size, stride in order(parameter)):
        if stride != span:
            raise Refused("a parameter has gaps in memory, or overlaps with itself")
        span *= size
    for each in beside:
        if isinstance(each, torch.Tensor) and not in_same_order(parameter, cast(Tensor, each)):
            raise Refused(IN_ANOTHER_ORDER)


def _rehearse(torch: ModuleType, optimizer: Optimizer) -> None:
    """One fused step of the same class and settings, on scratch parameters."""
    # Not type(optimizer): a subclass may ask for other arguments.
    cls = getattr(torch.optim, str(base_class(torch, optimizer, CLASSES)))
    own_step = vars(cls).get("step")  # AdamW has none where an Adam was made before it
    plain_step = cls.step
    while hasattr(plain_step, "__wrapped__") and hasattr(plain_step, "hooked"):
        plain_step = plain_step.__wrapped__  # no step hooks: the scratch step is none of the job's
    for group in optimizer.param_groups:
        kinds = {(each.dtype, each.device) for each in cast("list[Tensor]", group["params"])}
        settings = {
            name: value
            for name, value in group.items()
            if name in optimizer.defaults and name not in ("foreach", "fused", "decoupled_weight_decay")
        }
        for dtype, device in kinds:
            flags = [(name, value) for name, value in settings.items() if isinstance(value, bool)]
            kind = (cls, dtype, device, tuple(flags))
            if kind in _REHEARSED:
                continue
            try:
                scratch = torch.nn.Parameter(torch.ones(3, dtype=dtype, device=device))
                scratch.grad = torch.ones_like(scratch)
                plain_step(cls([scratch], **settings, fused=True))
            except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
                let_through(error)
                reason = str(error).splitlines()[0][:160]
                raise Refused(f"no fused step for {dtype} on {device}: {reason}") from None
            finally:
                # The first instance of a class makes torch wrap its step.
                if own_step is None and "step" in vars(cls):
                    del cls.step
                elif own_step is not None and vars(cls)["step"] is not own_step:
                    cls.step = own_step
            _REHEARSED.add(kind)
