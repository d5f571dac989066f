"""`layout.channels_last`: convolution weights with the channels innermost, as most fast kernels want them.

In place: the parameters stay the same objects with the same values, on other strides. Inputs follow
by themselves, for a convolution takes the layout of its weight. What the optimizer keeps for a
weight is laid out alike, because fused updates read both as flat memory. None of it may lie in memory that
others hold: a tensor of the job's own would not follow. An undo leaves what they have come to hold since.

The model is tried out before training calls it so (`layout_call`). What the script does with weights and
gradients outside the model can't be: a `view` of one that was flat raises. So it is tried only by name.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, MutableMapping
from contextlib import ExitStack
from types import ModuleType
from typing import cast

from ...live_torch.live_job import Job
from ...live_torch.parameter_places import Place, places_of
from ...live_torch.torch_types import Module, Tensor
from ..model_calls.call_layers import Rank, lead_through, refuse_odd, trained_roots
from ..model_calls.rehearsal import Rehearsal, Wording
from ..optimizer.optimizer_flags import Optimizer, base_class, parameters
from ..optimizer.optimizer_foreach import CLASSES
from ..registry import Refused, Undo, WatchedUndo, remedy
from .layout_call import LaidOut, Tried

_TRIED: MutableMapping[Module, Tried] = weakref.WeakKeyDictionary()


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
    if not all(_is_alone(torch, each) for _, weight in weights for each in _together(job, weight)):
        raise Refused(
            "a weight, its gradient or its state shares its memory with a tensor of the job's own, which "
            "would not follow"
        )
    _refuse_flat_updates(torch, [weight for _, weight in weights], job.optimizers)
    before = [(place, weight.stride()) for place, weight in weights]
    relays = ExitStack()  # what the first call that fails takes back already
    left: list[Place] = []

    def plain() -> list[tuple[Tensor, Tensor]]:
        live = [(place.parameter(), strides) for place, strides in before]
        return [(each, _copy(torch, each.data, strides)) for each, strides in live if each is not None]

    calls = []
    with ExitStack() as undo:
        undo.callback(relays.close)
        for root in roots:
            tried = _TRIED.setdefault(root, Tried())
            if tried.broken is not None:
                raise Refused(tried.broken)
            rehearsal = Rehearsal(torch, root, own_stream=False, wording=Wording("", ""))
            calls.append(LaidOut(rehearsal, tried, plain, relays.close))
            undo.callback(lead_through(root, Rank.LAYOUT, calls[-1].layer))
        for place, weight in weights:
            relays.callback(_relay_all(job, place, weight, left))
        applied = undo.pop_all()

    def undone() -> None:
        applied.close()
        if left:
            raise RuntimeError(
                "a weight stays channels_last: a tensor of the job's own has come to share its memory, and "
                "would not follow"
            )

    return WatchedUndo(undone, lambda: next((each.tried.broken for each in calls if each.tried.broken), None))


def _refuse_flat_updates(torch: ModuleType, weights: list[Tensor], optimizers: list[object]) -> None:
    """Refuse an optimizer that may read a weight or its gradient as flat memory.

    Raises:
        Refused: one that is not known to update element by element has one of the weights.
    """
    ours = {id(weight) for weight in weights}
    for each in optimizers:
        optimizer = cast(Optimizer, each)
        if not any(id(part) in ours for part in parameters(optimizer)):
            continue
        if any(group.get("fused") for group in optimizer.param_groups):
            raise Refused("the script's fused update reads what a checkpoint holds as flat memory")
        if base_class(torch, each, CLASSES) is None:
            raise Refused(f"{type(each).__name__} may read weights or gradients as flat memory")


def _relay_all(job: Job, place: Place, weight: Tensor, left: list[Place]) -> Undo:
    """Lay a weight out anew with all that goes through updates beside it; the undo finds what came since.

    Args:
        left: Takes where the undo leaves the layout.
    """
    torch, before = job.torch, weight.stride()
    found = _together(job, weight)
    laid_out = [_copy(torch, each.data, None) for each in found]  # all of them, or none: memory may be short
    for each, data in zip(found, laid_out, strict=True):
        each.data = data
    ours = weight.stride()

    def undo() -> None:
        live = place.parameter()
        if live is None or live.stride() != ours:
            return
        laid_out = [each for each in _together(job, live) if each.stride() == ours]
        if not all(_is_alone(torch, each) for each in laid_out):
            left.append(place)
            return
        for each in laid_out:
            each.data = _copy(torch, each.data, before)

    return undo


def _weights(torch: ModuleType, roots: list[Module]) -> list[tuple[Place, Tensor]]:
    """Weights of 2-D convolutions that are not channels_last.

    Raises:
        Refused: there is none, all are already, or one is in an order of its own.
    """
    kinds = (torch.nn.Conv2d, torch.nn.ConvTranspose2d)
    of_kinds = [part for root in roots for part in root.modules() if isinstance(part, kinds)]
    found = [
        (place, each)
        for place, each in places_of(of_kinds)
        if place.name == "weight" and isinstance(each, torch.nn.Parameter)
    ]
    if not found:
        raise Refused("the model has no 2-D convolution")
    wanted = torch.channels_last
    weights = [(place, each) for place, each in found if not each.is_contiguous(memory_format=wanted)]
    if not weights:
        raise Refused("its convolutions are channels_last already, or too small to differ")
    for _, weight in weights:
        if not weight.is_contiguous():
            raise Refused("a weight lies in memory in an order of its own")
    return weights


def _is_alone(torch: ModuleType, tensor: Tensor) -> bool:
    """Whether no other tensor lies in its memory, as far as this torch tells."""
    whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    return whole and _holders(torch, tensor) <= _holders(torch, torch.empty(1))


def _holders(torch: ModuleType, tensor: Tensor) -> int:
    """How many hold a tensor's memory, as far as this torch tells."""
    count = getattr(torch._C, "_storage_Use_Count", None)
    return 0 if count is None else int(count(tensor.untyped_storage()._cdata))


def _together(job: Job, weight: Tensor) -> list[Tensor]:
    """The weight, and what goes through the optimizer's update with it: gradient, and state of its shape."""
    torch = job.torch
    found = [weight] if weight.grad is None else [weight, weight.grad]
    for each in job.optimizers:
        state = cast(Optimizer, each).state.get(weight, {})
        found += [
            cast(Tensor, value)
            for value in state.values()
            if isinstance(value, torch.Tensor) and value.shape == weight.shape
        ]
    return found


def _copy(torch: ModuleType, old: Tensor, strides: tuple[int, ...] | None) -> Tensor:
    """A tensor's values on these strides, or channels_last."""
    with torch.inference_mode(False), torch.no_grad():  # whatever the job is doing just now
        if strides is None:
            new = torch.empty_like(old, memory_format=torch.channels_last)
        else:
            new = torch.empty_strided(tuple(old.shape), strides, dtype=old.dtype, device=old.device)
        return cast(Tensor, new.copy_(old))
