"""`layout.channels_last`: convolution weights with the channels innermost, as most fast kernels want them.

In place: the parameters stay the same objects with the same values, on other strides. Inputs follow
by themselves, for a convolution takes the layout of its weight. What the optimizer keeps for a
weight is laid out alike, because fused updates read both as flat memory.

The model is tried out before training calls it so (`layout_call`). What the script does with weights and
gradients outside the model can't be: a `view` of one that was flat raises. So it is tried only by name.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, MutableMapping
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, cast

from ..model_calls.call_layers import CallableModule, Rank, lead_through, refuse_odd, trained_roots
from ..model_calls.rehearsal import Rehearsal, Wording
from ..optimizer.optimizer_flags import Optimizer, base_class, parameters, undo_all
from ..optimizer.optimizer_foreach import CLASSES
from ..registry import Refused, Undo, WatchedUndo, remedy
from .layout_call import LaidOut, Tried, Weight

if TYPE_CHECKING:
    from autobrrr.injected.live_torch.live_job import Job


class LaidOutTensor(Protocol):
    """What is used of a torch tensor."""

    data: LaidOutTensor
    grad: LaidOutTensor | None
    shape: tuple[int, ...]
    dtype: object
    device: object

    def stride(self) -> tuple[int, ...]: ...
    def numel(self) -> int: ...
    def element_size(self) -> int: ...
    def is_contiguous(self, *, memory_format: object = ...) -> bool: ...
    def storage_offset(self) -> int: ...
    def untyped_storage(self) -> LaidOutTensor: ...
    def nbytes(self) -> int: ...
    def copy_(self, other: LaidOutTensor) -> LaidOutTensor: ...


_TRIED: MutableMapping[CallableModule, Tried] = weakref.WeakKeyDictionary()


def _release(torch: ModuleType) -> None:
    """Forget what was tried out: the next session may meet another loop."""
    _TRIED.clear()


@remedy(
    "layout.channels_last",
    treats=("compute", "memory", "underfilled"),
    reach="live",
    cls="rounding",
    doc="Lay out the weights of 4-D convolutions with the channels innermost.",
    targets=("layout.convolutions",),
    only_named=True,
    warm_up_steps=2,
    price_s=1.0,
    release=_release,
)
def channels_last(job: Job, options: Mapping[str, object]) -> Undo:
    torch, roots = job.torch, trained_roots(job)
    refuse_odd(torch, roots)
    if any(type(root).__name__ == "DistributedDataParallel" for root in job.roots):
        raise Refused("DistributedDataParallel has laid its buckets out after the weights as they are")
    weights = _weights(torch, roots)
    _refuse_flat_updates(torch, weights, job.optimizers)
    before = [(weakref.ref(weight), weight.stride()) for weight in weights]
    relays: list[Callable[[], None]] = []
    undos: list[Callable[[], None]] = [undo_all(relays)]

    def plain() -> list[tuple[Weight, object]]:
        live = [(ref(), strides) for ref, strides in before]
        return [
            (cast(Weight, each), _copy(torch, each.data, strides))
            for each, strides in live
            if each is not None
        ]

    calls = []
    try:
        for root in roots:
            tried = _TRIED.setdefault(root, Tried())
            if tried.broken is not None:
                raise Refused(tried.broken)
            calls.append(
                LaidOut(
                    Rehearsal(torch, root, own_stream=False, wording=Wording("", "")),
                    tried,
                    plain,
                    undo_all(relays),
                )
            )
            undos.append(lead_through(root, Rank.LAYOUT, calls[-1].layer))
        for weight in weights:
            relays.append(_relay_all(job, weight))
    except BaseException:
        undo_all(undos)()
        raise
    return WatchedUndo(
        undo_all(undos), lambda: next((each.tried.broken for each in calls if each.tried.broken), None)
    )


def _refuse_flat_updates(torch: ModuleType, weights: list[LaidOutTensor], optimizers: list[object]) -> None:
    """Refuse an optimizer that may read a weight or its gradient as flat memory.

    Raises:
        Refused: one that is not known to update element by element has one of the weights.
    """
    ours = {id(weight) for weight in weights}
    for each in optimizers:
        known = base_class(torch, each, CLASSES)
        if known is None and any(id(part) in ours for part in parameters(cast(Optimizer, each))):
            raise Refused(f"{type(each).__name__} may read weights or gradients as flat memory")


def _relay_all(job: Job, weight: LaidOutTensor) -> Undo:
    """Lay a weight out anew with all that goes through updates beside it; the undo finds what came since."""
    torch, before, remembered = job.torch, weight.stride(), weakref.ref(weight)
    for each in (weight, *_companions(torch, weight, job.optimizers)):
        _relay(torch, each, None)
    ours = weight.stride()

    def undo() -> None:
        live = remembered()
        if live is None or live.stride() != ours:
            return
        companions = _companions(torch, live, job.optimizers)
        for each in (live, *companions):
            if each.stride() == ours:
                _relay(torch, each, before)

    return undo


def _weights(torch: ModuleType, roots: list[CallableModule]) -> list[LaidOutTensor]:
    """Weights of 2-D convolutions that are not channels_last.

    Raises:
        Refused: there is none, all are already, or one shares its memory.
    """
    kinds = (torch.nn.Conv2d, torch.nn.ConvTranspose2d)
    found: dict[int, LaidOutTensor] = {}
    for root in roots:
        for part in root.modules():
            if isinstance(part, kinds) and isinstance(part._parameters.get("weight"), torch.nn.Parameter):
                found[id(part.weight)] = part.weight
    if not found:
        raise Refused("the model has no 2-D convolution")
    wanted = torch.channels_last
    weights = [each for each in found.values() if not each.is_contiguous(memory_format=wanted)]
    if not weights:
        raise Refused("its convolutions are channels_last already, or too small to differ")
    for weight in weights:
        if not weight.is_contiguous():
            raise Refused("a weight lies in memory in an order of its own")
        alone = weight.untyped_storage().nbytes() == weight.numel() * weight.element_size()
        if not alone or weight.storage_offset():
            raise Refused("a weight shares its memory with others: it is part of a flat buffer")
    return weights


def _companions(torch: ModuleType, weight: LaidOutTensor, optimizers: list[object]) -> list[LaidOutTensor]:
    """Tensors of the weight's shape that go through the optimizer's update with it: state and gradient."""
    found = [] if weight.grad is None else [weight.grad]
    for each in optimizers:
        state = cast(Optimizer, each).state.get(weight, {})
        found += [
            cast(LaidOutTensor, value)
            for value in state.values()
            if isinstance(value, torch.Tensor) and value.shape == weight.shape
        ]
    return found


def _relay(torch: ModuleType, tensor: LaidOutTensor, strides: tuple[int, ...] | None) -> None:
    """Move a tensor's values to these strides, or to channels_last, under the same object."""
    tensor.data = _copy(torch, tensor.data, strides)


def _copy(torch: ModuleType, old: LaidOutTensor, strides: tuple[int, ...] | None) -> LaidOutTensor:
    with torch.no_grad():
        if strides is None:
            new = torch.empty_like(old, memory_format=torch.channels_last)
        else:
            new = torch.empty_strided(tuple(old.shape), strides, dtype=old.dtype, device=old.device)
        return cast(LaidOutTensor, new.copy_(old))
