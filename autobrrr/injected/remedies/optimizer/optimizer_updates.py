"""Optimizers that update with another implementation of torch's; their param groups stay as they are.

`Adam.step` hands each param group to the function `torch.optim.adam.adam`, with the group's flags. That
function stands replaced while a remedy is on: for optimizers that are chosen, it goes on with other flags.
Nothing is written into param groups or state, so checkpoints, copies and the job's own code see what they
would see without us, in the middle of a step too, and an undo has nothing to put back there.
"""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import cast

from ...live_torch.patches import Patch
from ...live_torch.torch_types import Tensor
from ..registry import Refused, WatchedUndo
from .optimizer_flags import (
    IN_ANOTHER_ORDER,
    IN_THE_SAME_MEMORY,
    OF_ANOTHER_TYPE,
    Optimizer,
    in_same_order,
    is_plain,
    overlap,
    parameters,
    unwrapped,
)

Update = Callable[..., object]
ANOTHER_KIND = ("fused", "capturable", "differentiable", "has_complex", "has_sparse_grad", "found_inf")
OF_ANOTHER_KIND = "a parameter has come to be of another type or on another device"

_CHOSEN: list[OptimizerUpdates] = []
_PATCHES: dict[tuple[str, str], Patch] = {}


class OptimizerUpdates:
    """How the parameters that an optimizer had when it was chosen are updated.

    Holds no parameter, not weakly either: torch swaps none that has weak references.

    Args:
        flags: Given to the update function in place of the groups'.
        exact_order: The implementation reads all tensors as flat memory.

    Attributes:
        trouble: Why it is updated as the job says after all; None where it is not.
    """

    def __init__(
        self, torch: ModuleType, optimizer: Optimizer, flags: Mapping[str, bool], *, exact_order: bool
    ) -> None:
        self.trouble: str | None = None
        self.optimizer = weakref.ref(optimizer)
        self.flags = flags
        self._torch = torch
        self._exact_order = exact_order
        self._stride: Callable[[Tensor], tuple[int, ...]] = torch.Tensor.stride
        self._address: Callable[[Tensor], int] = torch.Tensor.data_ptr
        self._places = {
            id(parameter): (number, place)
            for number, group in enumerate(optimizer.param_groups)
            for place, parameter in enumerate(cast("list[Tensor]", group["params"]))
        }
        self._kinds = {(each.dtype, each.device) for each in parameters(optimizer)}
        self._known: dict[int, tuple[object, bool]] = {}  # by a first parameter's id: layout, counts apart
        self._counts: dict[int, StepCount] = {}  # by a parameter's id

    def holds(self, parameter: Tensor) -> bool:
        """Whether it was there when the optimizer was chosen, and still is."""
        optimizer, place = self.optimizer(), self._places.get(id(parameter))
        if optimizer is None or place is None:
            return False
        try:
            params = cast("list[Tensor]", optimizer.param_groups[place[0]]["params"])
            if params[place[1]] is parameter:
                return True
        except IndexError:
            pass
        return any(each is parameter for each in parameters(optimizer))  # in another order now

    def update(
        self,
        original: Update,
        counts_at: int | None,
        lists: Sequence[Sequence[Tensor]],
        settings: dict[str, object],
    ) -> object:
        """One update of a group, on its lists of parameters, gradients and state."""
        for name in ANOTHER_KIND:  # no generator: this is in every step
            if settings.get(name):
                return original(*lists, **settings)
        if self.trouble is not None:
            return original(*lists, **settings)
        for value in settings.values():
            if not is_plain(value):
                return original(*lists, **settings)
        first, layout = id(lists[0][0]), self._layout(lists)
        known, counts_apart = self._known.get(first, (None, False))
        if known != layout:
            self.trouble = self._why_not(lists, counts_at)
            counts_apart = counts_at is not None and self._are_apart(lists[0], lists[counts_at])
            self._known[first] = layout, counts_apart
            if self.trouble is not None or any(map(_is_begun_in_part, lists[2:])):
                return original(*lists, **settings)
        flagged = {**settings, **self.flags}
        if flagged.get("foreach") and _writes_gradients(settings):
            lists = [lists[0], [each.clone() for each in lists[1]], *lists[2:]]
        if counts_at is None or not counts_apart:
            return original(*lists, **flagged)
        return self._update_with_own_counts(original, counts_at, lists, flagged)

    def _layout(self, lists: Sequence[Sequence[Tensor]]) -> object:
        """How all lies in memory. State is another object once it was loaded or set anew."""
        parameters, gradients, *state = lists
        return (
            [each.dtype for each in (*parameters, *gradients)],
            list(map(self._stride, parameters)),
            list(map(self._address, parameters)),
            list(map(self._stride, gradients)),
            [list(map(id, each)) for each in state],
            [self._address(each[0]) for each in state if each and each[0] is not None],
        )

    def _why_not(self, lists: Sequence[Sequence[Tensor]], counts_at: int | None) -> str | None:
        """Why these are updated as the job says; None where they are not."""
        parameters, *beside = lists
        kept = [each for state in beside[1:] for each in state if isinstance(each, self._torch.Tensor)]
        if any((each.dtype, each.device) not in self._kinds for each in parameters):
            return OF_ANOTHER_KIND
        if overlap([*parameters, *kept]):
            return IN_THE_SAME_MEMORY
        for number, found in enumerate(beside, 1):
            for parameter, each in zip(parameters, found, strict=False):
                if not isinstance(each, self._torch.Tensor):
                    continue
                if self._exact_order and not in_same_order(parameter, each):
                    return IN_ANOTHER_ORDER
                if number != counts_at and each.dtype != parameter.dtype:
                    return OF_ANOTHER_TYPE
        return None

    def _are_apart(self, parameters: Sequence[Tensor], counts: Sequence[Tensor]) -> bool:
        """Whether step counts lie where, or are of a type that, fused kernels don't take."""
        single = self._torch.float32
        return any(
            count.dtype != single or count.device != parameter.device
            for count, parameter in zip(counts, parameters, strict=True)
        )

    def _update_with_own_counts(
        self,
        original: Update,
        counts_at: int,
        lists: Sequence[Sequence[Tensor]],
        settings: Mapping[str, object],
    ) -> object:
        """The job's step counts stay where and what they are, and are counted on as torch does it there."""
        theirs = lists[counts_at]
        ours = [self._count(parameter, count) for parameter, count in zip(lists[0], theirs, strict=True)]
        given = list(lists)
        given[counts_at] = [each.tensor for each in ours]
        try:
            result = original(*given, **settings)
            self._torch._foreach_add_(theirs, 1)
        except BaseException:
            self._counts.clear()  # some may have been counted on
            raise
        for each in ours:
            each.seen()
        return result

    def _count(self, parameter: Tensor, theirs: Tensor) -> StepCount:
        found = self._counts.get(id(parameter))
        if found is None or not found.follows(theirs):
            tensor = theirs.to(device=parameter.device, dtype=self._torch.float32)
            found = self._counts[id(parameter)] = StepCount(theirs, tensor)
        return found


def _is_begun_in_part(state: Sequence[Tensor | None]) -> bool:
    """Whether some parameters have no state yet, and others have: torch's fused SGD takes all or none."""
    missing = [each is None for each in state]
    return any(missing) and not all(missing)


def _writes_gradients(settings: Mapping[str, object]) -> bool:
    """Whether torch's SGD on lists of tensors adds the momentum to the gradients themselves."""
    return bool(
        settings.get("nesterov") and not settings.get("weight_decay") and not settings.get("maximize")
    )


class StepCount:
    """A step count where fused kernels want it, beside the job's own: a tensor of one number."""

    __slots__ = ("_theirs", "_version", "tensor")

    def __init__(self, theirs: Tensor, tensor: Tensor) -> None:
        self.tensor = tensor
        self._theirs = theirs
        self._version = theirs._version

    def follows(self, theirs: Tensor) -> bool:
        """Whether nobody has set theirs meanwhile."""
        return self._theirs is theirs and theirs._version == self._version

    def seen(self) -> None:
        """Theirs was counted on, as ours was."""
        self._version = self._theirs._version


def choose(
    torch: ModuleType, optimizers: Sequence[Optimizer], flags: Mapping[str, bool], *, exact_order: bool
) -> WatchedUndo:
    """Update optimizers' parameters of now with these flags, from their next steps on.

    Returns:
        The undo: their next updates are as the job says. It may be called in the middle of a step.

    Raises:
        Refused: this torch updates parameters of one in another way; nothing was changed.
    """
    for module, name in [_update_function(type(optimizer)) for optimizer in optimizers]:
        if (module.__name__, name) not in _PATCHES:
            led = functools.partial(_led, _is_compiling(torch))
            _PATCHES[module.__name__, name] = Patch(module, name, led)
        _PATCHES[module.__name__, name].put_on()
    made = [OptimizerUpdates(torch, each, flags, exact_order=exact_order) for each in optimizers]
    _CHOSEN.extend(made)

    def undo() -> None:
        _CHOSEN[:] = [each for each in _CHOSEN if each not in made and each.optimizer() is not None]
        if not _CHOSEN:
            for patch in _PATCHES.values():
                patch.take_off()

    return WatchedUndo(undo, lambda: next((each.trouble for each in made if each.trouble is not None), None))


def flags_of(optimizer: Optimizer) -> Mapping[str, bool]:
    """The flags that stand in for those of its groups; none where it is updated with those."""
    return next((each.flags for each in _CHOSEN if each.optimizer() is optimizer), {})


def _led(is_compiling: Callable[[], bool], original: Update) -> Update:
    """The update function that looks whether its optimizer is chosen; one that is being compiled never is."""
    counts_at = _counts_at(original)
    fewest = max(2, 0 if counts_at is None else counts_at + 1)

    @functools.wraps(original)
    def update(*lists: Sequence[Tensor], **settings: object) -> object:
        if is_compiling() or len(lists) < fewest or not lists[0]:
            return original(*lists, **settings)
        for chosen in _CHOSEN:
            if chosen.holds(lists[0][0]):
                return chosen.update(original, counts_at, lists, settings)
        return original(*lists, **settings)

    return update


def _is_compiling(torch: ModuleType) -> Callable[[], bool]:
    found: Callable[[], bool] | None = getattr(torch.compiler, "is_compiling", None)
    return found or cast("Callable[[], bool]", torch._utils.is_compiling)


def _counts_at(update: Update) -> int | None:
    names = list(inspect.signature(update).parameters)
    return names.index("state_steps") if "state_steps" in names else None


def _update_function(cls: type) -> tuple[ModuleType, str]:
    step = unwrapped(getattr(cls, "step", None))
    code, module = getattr(step, "__code__", None), sys.modules.get(getattr(step, "__module__", ""))
    for name in () if code is None or module is None else code.co_names:
        found = vars(module).get(name)
        if inspect.isfunction(found) and "foreach" in inspect.signature(found).parameters:
            return cast(ModuleType, module), name
    raise Refused("this torch updates parameters in another way")
