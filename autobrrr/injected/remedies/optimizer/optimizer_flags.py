"""What the optimizer remedies share: which optimizers they understand, and what they refuse in them.

An optimizer is understood if its class is one of torch.optim, or a subclass that leaves the
arithmetic alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Protocol, cast

from ...live_torch.compiled_code import holds_code_of
from ...live_torch.live_job import Job
from ...live_torch.torch_types import RemovableHandle, Tensor
from ..registry import RefusalCode, Refused

IMPLEMENTATION = "optimizer.implementation"
IN_ANOTHER_ORDER = "a gradient or state lies in memory in another order than its parameter"
IN_THE_SAME_MEMORY = "two tensors that it writes (parameters, state) lie in the same memory"
OF_ANOTHER_TYPE = "a gradient or state is of another type than its parameter"
PLAIN = frozenset((bool, int, float, str, type(None)))


class Optimizer(Protocol):
    """What a torch optimizer looks like from here."""

    param_groups: list[dict[str, object]]
    state: dict[object, dict[str, object]]
    defaults: dict[str, object]

    def register_step_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle: ...


def base_class(torch: ModuleType, optimizer: object, names: Iterable[str]) -> str | None:
    """The name of the torch.optim class whose arithmetic the optimizer uses; None for others."""
    for name in names:
        known = getattr(torch.optim, name, None)
        if known is None or not isinstance(optimizer, known):
            continue
        # The exact class first: AdamW is a subclass of Adam in some versions of torch.
        if type(optimizer) is known or _same_arithmetic(type(optimizer), known):
            return name
    return None


def _same_arithmetic(cls: type, known: type) -> bool:
    return all(
        unwrapped(getattr(cls, method, None)) is unwrapped(getattr(known, method, None))
        for method in ("step", "_init_group", "__setstate__", "add_param_group")
    )


def unwrapped(function: object) -> object:
    """The function below all wraps."""
    # torch wraps `step` once for each class that was instantiated first: look below the wraps.
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def parameters(optimizer: Optimizer) -> Iterator[Tensor]:
    """All parameters, over all groups."""
    for group in optimizer.param_groups:
        yield from group["params"]  # type: ignore[misc]


def refuse_unusual(torch: ModuleType, optimizer: Optimizer) -> None:
    """Refuse what no multi-tensor implementation of torch takes, and a step that the job has compiled.

    Raises:
        Refused: differentiable or capturable groups, sparse gradients, odd parameters, a compiled step, or
            what is written lies in the same memory: lists are not updated one after the other.
    """
    code = getattr(unwrapped(getattr(type(optimizer), "step", None)), "__code__", None)
    if code is not None and holds_code_of(torch, code):
        raise Refused("the job has compiled its step, which torch would compile anew")
    for group in optimizer.param_groups:
        if group.get("differentiable"):
            raise Refused("the optimizer is differentiable")
        if group.get("capturable"):
            raise Refused("the optimizer is capturable: its step may stand in a CUDA graph")
        if isinstance(group.get("lr"), torch.Tensor):
            raise Refused("the learning rate is a tensor")
        for name in optimizer.defaults:
            value = group.get(name)
            for each in value if isinstance(value, tuple | list) else (value,):
                if not is_plain(each):
                    raise Refused(f"{name} is a {type(each).__name__}, which not every implementation takes")
    for parameter in parameters(optimizer):
        if type(parameter) not in (torch.Tensor, torch.nn.Parameter):
            raise Refused(f"a parameter is a {type(parameter).__name__}")
        if not parameter.is_floating_point():
            raise Refused(f"a parameter is {parameter.dtype}")
        if parameter.is_sparse or (parameter.grad is not None and parameter.grad.is_sparse):
            raise Refused("a parameter has sparse gradients")
    state = [optimizer.state.get(each, {}).values() for each in parameters(optimizer)]
    kept = [cast(Tensor, each) for values in state for each in values if isinstance(each, torch.Tensor)]
    if overlap([*parameters(optimizer), *kept]):
        raise Refused(IN_THE_SAME_MEMORY)


def overlap(found: Iterable[Tensor]) -> bool:
    """Whether the memory from the first to the last element of two tensors has a part in common."""
    spans = []
    for each in found:
        if each.numel():
            last = sum((size - 1) * step for size, step in zip(each.shape, each.stride(), strict=True))
            spans.append((each.data_ptr(), each.data_ptr() + (last + 1) * each.element_size()))
    spans.sort()
    return any(ends > begins for (_, ends), (begins, _) in itertools.pairwise(spans))


def is_plain(setting: object) -> bool:
    """Whether a setting is what every implementation of an update takes: NumPy's float64 is a float, too."""
    return type(setting) in PLAIN or isinstance(setting, float)


def refuse_sparse_modules(roots: Iterable[object]) -> None:
    """Refuse where a module will make sparse gradients; they may not be there at the boundary.

    Raises:
        Refused: an embedding with `sparse=True`.
    """
    for root in roots:
        for module in root.modules():  # type: ignore[attr-defined]
            if getattr(module, "sparse", False) is True:
                raise Refused(f"{type(module).__name__} makes sparse gradients")


def in_same_order(parameter: Tensor, other: Tensor) -> bool:
    """Whether element `n` in memory is the same one in both, as far as they are of one shape."""
    return other.shape != parameter.shape or order(other) == order(parameter)


def order(tensor: Tensor) -> list[tuple[int, int]]:
    """Size and stride of each dimension that has more than one element."""
    return [(size, stride) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size != 1]


def fitting_optimizers(job: Job, check: Callable[[ModuleType, Optimizer], None]) -> list[Optimizer]:
    """The optimizers that a check lets through.

    Raises:
        Refused: none has stepped yet, or all are refused; with every reason.
    """
    if not job.optimizers:
        raise Refused("no optimizer has stepped yet", RefusalCode.NOT_MET)
    reasons = []
    fitting = []
    for found in job.optimizers:
        optimizer = cast(Optimizer, found)
        try:
            check(job.torch, optimizer)
        except Refused as refused:
            reasons.append(f"{type(optimizer).__name__}: {refused}")
        else:
            fitting.append(optimizer)
    if not fitting:
        raise Refused("; ".join(dict.fromkeys(reasons)))
    return fitting
