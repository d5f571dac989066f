"""`optimizer.fused`: the whole optimizer update in one kernel per device and dtype.

Switched on in the param groups of the live optimizer. Before that, the same class takes one step
on scratch parameters of the job's dtypes and devices: a kernel that is missing in this build of
torch is refused here, and never met by the training loop. The kernels read weight, gradient and
state as flat memory: all three must lie in it in the same order.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, cast

from .optimizers import (
    IMPLEMENTATION,
    GroupFlags,
    Optimizer,
    Tensor,
    base_class,
    fitting_optimizers,
    parameters,
    refuse_sparse_modules,
    refuse_unusual,
    undo_all,
)
from .registry import Refused, Undo, remedy

if TYPE_CHECKING:
    from autobrrr.agent.job import Job

CLASSES = ("AdamW", "Adam", "SGD", "Adagrad")
_CHECKED = "_need_device_dtype_check_for_fused"  # torch leaves it on an optimizer that stepped fused
_REHEARSED: set[tuple[object, ...]] = set()  # a lever is switched many times


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
    fitting = fitting_optimizers(job, _check)
    undos: list[Callable[[], None]] = []
    for optimizer in fitting:
        _switch_on(job.torch, optimizer, undos)
    return undo_all(undos)


def _check(torch: ModuleType, optimizer: Optimizer) -> None:
    name = base_class(torch, optimizer, CLASSES)
    if name is None or "fused" not in optimizer.defaults:
        raise Refused("torch has no fused kernel for it")
    if all(group.get("fused") for group in optimizer.param_groups):
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
    ours = _order(parameter)
    span = 1
    for stride, size in sorted((stride, size) for size, stride in ours):
        if stride != span:
            raise Refused("a parameter has gaps in memory, or overlaps with itself")
        span *= size
    for each in beside:
        if not isinstance(each, torch.Tensor) or each.shape != parameter.shape:
            continue
        if _order(cast(Tensor, each)) != ours:
            raise Refused("a gradient or state lies in memory in another order than its parameter")


def _order(tensor: Tensor) -> list[tuple[int, int]]:
    """Size and stride of each dimension that has more than one element."""
    return [(size, stride) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size != 1]


def _rehearse(torch: ModuleType, optimizer: Optimizer) -> None:
    """One fused step of the same class and settings, on scratch parameters."""
    # Not type(optimizer): a subclass may ask for other arguments.
    cls = getattr(torch.optim, str(base_class(torch, optimizer, CLASSES)))
    own_step = vars(cls)["step"]
    plain_step = own_step
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
                reason = str(error).splitlines()[0][:160]
                raise Refused(f"no fused step for {dtype} on {device}: {reason}") from None
            finally:
                if vars(cls)["step"] is not own_step:
                    cls.step = own_step  # the first instance of a class makes torch wrap it
            _REHEARSED.add(kind)


def _switch_on(torch: ModuleType, optimizer: Optimizer, undos: list[Callable[[], None]]) -> None:
    had_mark = _CHECKED in vars(optimizer)
    mark = vars(optimizer).get(_CHECKED)
    flags: dict[str, object] = {"fused": True}
    if any(group.get("foreach") for group in optimizer.param_groups):
        flags["foreach"] = False
    kept = _steps_to_device(torch, optimizer)
    group_flags = GroupFlags(optimizer, flags)
    remembered = weakref.ref(optimizer)

    def undo() -> None:
        group_flags.put_back()
        live = remembered()
        if live is None:
            return
        _steps_as_before(torch, live, kept)
        if had_mark:
            setattr(live, _CHECKED, mark)
        else:
            vars(live).pop(_CHECKED, None)

    undos.append(undo)


def _steps_to_device(torch: ModuleType, optimizer: Optimizer) -> dict[int, Tensor]:
    """Put step counts where fused kernels want them; returns the original tensors by parameter id."""
    originals: dict[int, Tensor] = {}
    for parameter in parameters(optimizer):
        state = optimizer.state.get(parameter)
        if state is None or "step" not in state:
            continue
        step = cast(Tensor, state["step"])
        originals[id(parameter)] = step
        if step.device != parameter.device or step.dtype != torch.float32:
            state["step"] = step.to(device=parameter.device, dtype=torch.float32)
    return originals


def _steps_as_before(torch: ModuleType, optimizer: Optimizer, originals: dict[int, Tensor]) -> None:
    """The original tensors with today's counts; new ones as an optimizer that is not fused makes them."""
    scalar = torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32
    for group in optimizer.param_groups:
        if group.get("fused"):
            continue  # the user's own
        for parameter in cast("list[Tensor]", group["params"]):
            state = optimizer.state.get(parameter, {})
            if not isinstance(state.get("step"), torch.Tensor):
                continue
            step = cast(Tensor, state["step"])
            original = originals.get(id(parameter))
            if original is None:
                state["step"] = step.to(device="cpu", dtype=scalar)
            elif original is not step:
                original.copy_(step)
                state["step"] = original
