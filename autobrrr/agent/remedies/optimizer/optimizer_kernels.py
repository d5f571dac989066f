"""`optimizer.foreach`: the update's operators on lists of tensors; `optimizer.fused`: one kernel for all.

The first means fewer calls for many small parameters, at the price of temporary memory of the size of the
parameters. torch does so by itself on a GPU; on a CPU it does not.

Both are flags of an optimizer's param groups, set as its owner could have set them. Checkpoints made
meanwhile hold the owner's flags: a hook of torch's own puts them into each `state_dict`.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Protocol, cast

from ...live_torch.compiled_code import holds_code_of
from ...live_torch.dispatch_modes import unwatched
from ...live_torch.live_job import Job
from ...live_torch.torch_types import Module, RemovableHandle, Tensor
from ..device_headroom import parameter_bytes
from ..registry import RefusalCode, Refused, Undo, WatchedUndo, fitting, remedy

IMPLEMENTATION = "optimizer.implementation"
_CHOICES = ("foreach", "fused", "decoupled_weight_decay")
Group = dict[str, object]
# Compared over 100 steps, with every option: the same bits on a CPU in float32 and float64. Others, and half
# precision in all of them, round differently in some operator.
SAME_BITS = ("AdamW", "Adam", "SGD", "RMSprop", "Adagrad", "Adadelta", "Adamax", "Rprop")
FUSED = ("AdamW", "Adam", "SGD", "Adagrad")


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
    return switch(job.torch, fitting_optimizers(job, _check_foreach), {"foreach": True})


def _check_foreach(torch: ModuleType, optimizer: Optimizer) -> None:
    if not _is_of_torch(torch, optimizer, SAME_BITS):
        raise Refused("torch has no bitwise foreach for this optimizer")
    if all(group.get("foreach") for group in optimizer.param_groups):
        raise Refused("foreach is on already")
    if any(group.get("fused") for group in optimizer.param_groups):
        raise Refused("fused is on, which is faster")
    refuse_unusual(torch, optimizer)
    for each in parameters(optimizer):
        if each.device.type != "cpu" or each.dtype not in (torch.float32, torch.float64):
            raise Refused("foreach is bitwise only in float32 or float64 on a CPU")


@remedy(
    "optimizer.fused",
    treats=("overhead", "memory"),
    reach="live",
    cls="rounding",
    doc="Update all parameters in one fused kernel instead of several operators for each tensor.",
    targets=(IMPLEMENTATION,),
)
def fused(job: Job, options: Mapping[str, object]) -> Undo:
    return switch(job.torch, fitting_optimizers(job, _check_fused), {"fused": True, "foreach": False})


def _check_fused(torch: ModuleType, optimizer: Optimizer) -> None:
    if not _is_of_torch(torch, optimizer, FUSED) or "fused" not in optimizer.defaults:
        raise Refused("torch has no fused kernel for it")
    if all(group.get("fused") for group in optimizer.param_groups):
        raise Refused("fused is on already")
    refuse_unusual(torch, optimizer)
    for parameter in parameters(optimizer):
        state = optimizer.state.get(parameter, {})
        _refuse_other_orders(torch, parameter, [parameter.grad, *state.values()])
    _step_fused_on_scratch(torch, optimizer)


def _refuse_other_orders(torch: ModuleType, parameter: Tensor, beside: Iterable[object]) -> None:
    """Refuse what the kernels, which read all tensors as flat memory, would mix up.

    Raises:
        Refused: a parameter with gaps in memory, or a gradient or state with other strides.
    """
    spans = 1 + sum((size - 1) * stride for size, stride in _order(parameter))
    if parameter.numel() not in (0, spans):
        raise Refused("a parameter has gaps in memory, or overlaps with itself")
    for each in beside:
        alike = isinstance(each, torch.Tensor) and each.shape == parameter.shape
        if alike and _order(cast(Tensor, each)) != _order(parameter):
            raise Refused("a gradient or state has other strides than its parameter")


def _order(tensor: Tensor) -> list[tuple[int, int]]:
    """Size and stride of each dimension that has more than one element."""
    return [(size, stride) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


class Optimizer(Protocol):
    """The part of a torch optimizer that remedies use."""

    param_groups: list[Group]
    state: dict[object, dict[str, object]]
    defaults: dict[str, object]

    def register_state_dict_post_hook(self, hook: Callable[..., object]) -> RemovableHandle: ...


def _is_of_torch(torch: ModuleType, optimizer: object, names: Iterable[str]) -> bool:
    """Whether it is one of these classes of torch.optim; a subclass may update in its own way."""
    return type(optimizer) in [getattr(torch.optim, name, None) for name in names]


def parameters(optimizer: Optimizer) -> Iterator[Tensor]:
    """All parameters, over all groups."""
    for group in optimizer.param_groups:
        yield from group["params"]  # type: ignore[misc]


def refuse_unusual(torch: ModuleType, optimizer: Optimizer) -> None:
    """Refuse settings and parameters that torch itself would raise on in the next step.

    Raises:
        Refused: differentiable or capturable groups, a tensor as learning rate, sparse gradients, odd
            parameters, or a step that the job has compiled.
    """
    code = getattr(inspect.unwrap(type(optimizer).step), "__code__", None)  # type: ignore[attr-defined]
    if code is not None and holds_code_of(torch, code):
        raise Refused("the job has compiled its step, which torch would compile anew")
    if not hasattr(optimizer, "register_state_dict_post_hook"):
        raise Refused("this torch can't keep the flags out of checkpoints (it needs torch 2.2 or newer)")
    for group in optimizer.param_groups:
        for name in ("differentiable", "capturable"):
            if group.get(name):
                raise Refused(f"the optimizer is {name}")
        if isinstance(group.get("lr"), torch.Tensor):
            raise Refused("the learning rate is a tensor")
    for parameter in parameters(optimizer):
        if type(parameter) not in (torch.Tensor, torch.nn.Parameter):
            raise Refused(f"a parameter is a {type(parameter).__name__}")
        if not parameter.is_floating_point():
            raise Refused(f"a parameter is {parameter.dtype}")
        if parameter.is_sparse or (parameter.grad is not None and parameter.grad.is_sparse):
            raise Refused("a parameter has sparse gradients")
    known = [bool(optimizer.state.get(each)) for each in parameters(optimizer)]
    if any(known) and not all(known):
        # torch's fused SGD raises once such a parameter gets its first gradient.
        raise Refused("some parameters have never been updated")


def fitting_optimizers(job: Job, check: Callable[[ModuleType, Optimizer], None]) -> list[Optimizer]:
    """The optimizers that a check lets through.

    Raises:
        Refused: none has stepped yet, or all are refused.
    """
    if not job.optimizers:
        raise Refused("no optimizer has stepped yet", RefusalCode.NOT_MET)
    for root in cast("list[Module]", job.roots):
        for module in root.modules():
            if getattr(module, "sparse", False) is True:  # gradients are often cleared by the time we look
                raise Refused(f"{type(module).__name__} makes sparse gradients")

    def fits(optimizer: Optimizer) -> None:
        try:
            check(job.torch, optimizer)
        except Refused as refused:
            raise Refused(f"{type(optimizer).__name__}: {refused}") from None

    return fitting(cast("list[Optimizer]", job.optimizers), fits)


def _step_fused_on_scratch(torch: ModuleType, optimizer: Optimizer) -> None:
    """Try one fused step with each group's settings, on a scratch parameter.

    If this torch has no such kernel, it says so here and not in the training loop.

    Raises:
        Refused: with what torch said.
    """
    cls: Any = type(optimizer)
    step = cls.step
    while hasattr(step, "hooked"):
        step = step.__wrapped__  # a global step hook of the job's must not see the scratch step
    for group in optimizer.param_groups:
        settings = {key: group[key] for key in optimizer.defaults if key in group and key not in _CHOICES}
        for dtype, device in {(each.dtype, each.device) for each in cast("list[Tensor]", group["params"])}:
            try:
                with unwatched(torch):
                    scratch = torch.nn.Parameter(torch.ones(3, dtype=dtype, device=device))
                    scratch.grad = torch.ones_like(scratch)
                    step(cls([scratch], **settings, fused=True))
            except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
                said = str(error).splitlines()[0][:160]
                raise Refused(f"torch refuses fused for {dtype} on {device}: {said}") from None


def switch(torch: ModuleType, optimizers: Sequence[Optimizer], flags: Mapping[str, bool]) -> WatchedUndo:
    """Set flags in the param groups of today; the undo restores each group's own.

    A group that the job loads or changes meanwhile keeps what the job has set: the remedy then counts as
    gone, and the undo leaves that group alone.
    """
    switched = [_Switched(torch, optimizer, flags) for optimizer in optimizers]

    def undo() -> None:
        for each in switched:
            each.undo()

    def trouble() -> str | None:
        on = any(each.on() for each in switched)
        return None if on else "the job has set the flags of its optimizer since"

    return WatchedUndo(undo, trouble)


class _Switched:
    """One optimizer with the flags set. It does not keep the optimizer alive."""

    def __init__(self, torch: ModuleType, optimizer: Optimizer, flags: Mapping[str, bool]) -> None:
        self._torch, self._flags = torch, flags
        self._optimizer = weakref.ref(optimizer)
        self._attributes = set(vars(optimizer))  # torch's fused SGD notes that it has checked devices
        self._own = [{name: group[name] for name in flags} for group in optimizer.param_groups]
        self._counts: list[Tensor | None] = []  # as they lay before, one per parameter
        if flags.get("fused"):
            self._counts = [self._move_count(optimizer, each) for each in parameters(optimizer)]
        for group in optimizer.param_groups:
            group.update(flags)
        self._hook = optimizer.register_state_dict_post_hook(self._in_checkpoint)

    def on(self) -> bool:
        """Whether the optimizer still updates so; one that is gone is no trouble."""
        optimizer = self._optimizer()
        return optimizer is None or any(map(self._holds, optimizer.param_groups))

    def _holds(self, group: Group) -> bool:
        return all(group.get(name) is value for name, value in self._flags.items())

    def _in_checkpoint(self, optimizer: object, state: dict[str, list[Group]]) -> None:
        for group, own in zip(state["param_groups"], self._own, strict=False):
            group.update(own)

    def _move_count(self, optimizer: Optimizer, parameter: Tensor) -> Tensor | None:
        """Put a step count where fused kernels read it, as `load_state_dict` does."""
        state = optimizer.state.get(parameter, {})
        count = state.get("step")
        if not isinstance(count, self._torch.Tensor):
            return None
        state["step"] = count.to(device=parameter.device, dtype=self._torch.float32)
        return cast(Tensor, count)

    def undo(self) -> None:
        """Restore the flags that nobody has set since; once."""
        self._hook.remove()
        optimizer = self._optimizer()
        if optimizer is None:
            return
        for group, own in zip(optimizer.param_groups, self._own, strict=False):
            if self._holds(group):
                group.update(own)
        for parameter, count in zip(parameters(optimizer), self._counts, strict=False):
            state = optimizer.state.get(parameter, {})
            if count is not None and isinstance(state.get("step"), self._torch.Tensor):
                now = cast(Tensor, state["step"])
                state["step"] = now.to(device=count.device, dtype=count.dtype)
        for name in set(vars(optimizer)) - self._attributes:
            if name.endswith("_for_fused"):
                delattr(optimizer, name)
        self._own, self._counts = [], []
