"""Optimizers that update with another implementation of torch's; their param groups stay as they are.

`Adam.step` hands each param group to the function `torch.optim.adam.adam`, with the group's flags. That
function stands replaced while a remedy is on: for parameters that are chosen, it goes on with other flags.
Nothing is written into param groups or state, so checkpoints, copies and the job's own code see what they
would see without us, in the middle of a step too, and an undo has nothing to put back there.
"""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import cast

from ...live_torch.patches import Patch
from ...live_torch.torch_types import Tensor
from ..registry import Refused
from .optimizer_flags import (
    IN_ANOTHER_ORDER,
    OF_ANOTHER_TYPE,
    Optimizer,
    in_same_order,
    is_plain,
    unwrapped,
)

Update = Callable[..., object]
ANOTHER_KIND = ("fused", "capturable", "differentiable", "has_complex", "has_sparse_grad", "found_inf")

_CHOSEN: dict[int, tuple[weakref.ref[Tensor], GroupUpdates]] = {}  # by the parameter's id
_PATCHES: dict[tuple[str, str], Patch] = {}


Order = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Looked:
    """What an update was called on when it was looked at: types, strides, and which tensors they were."""

    types: list[object]
    parameters: list[Order]
    gradients: list[Order]
    tensors: list[list[int]]  # ids, of parameters and state
    state: list[weakref.ref[Tensor] | None]  # the first of each kind


class GroupUpdates:
    """How the parameters of one group are updated.

    Args:
        flags: Given to the update function in place of the group's.
        exact_order: The implementation reads all tensors as flat memory.
    """

    def __init__(self, torch: ModuleType, flags: Mapping[str, bool], *, exact_order: bool) -> None:
        self.trouble: str | None = None
        self.flags = flags
        self._torch = torch
        self._exact_order = exact_order
        self._stride: Callable[[Tensor], Order] = torch.Tensor.stride
        self._looked_at: dict[int, _Looked] = {}  # by the first parameter's id
        self._counts_apart = False
        self._counts: dict[int, StepCount] = {}

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
        if not self._is_looked_at(lists):
            self._look(lists, counts_at)
            if self.trouble is not None or any(map(_is_begun_in_part, lists[2:])):
                return original(*lists, **settings)
        flagged = {**settings, **self.flags}
        if flagged.get("foreach") and _writes_gradients(settings):
            lists = [lists[0], [each.clone() for each in lists[1]], *lists[2:]]
        if counts_at is None or not self._counts_apart:
            return original(*lists, **flagged)
        return self._update_with_own_counts(original, counts_at, lists, flagged)

    def _is_looked_at(self, lists: Sequence[Sequence[Tensor]]) -> bool:
        """Whether all lies in memory as then. State is another object once it was loaded or set anew."""
        known = self._looked_at.get(id(lists[0][0]))
        if known is None or known.parameters != list(map(self._stride, lists[0])):
            return False
        if known.types != [each.dtype for each in lists[0]]:
            return False
        if known.gradients != list(map(self._stride, lists[1])):
            return False
        if known.tensors != [list(map(id, each)) for each in (lists[0], *lists[2:])]:
            return False
        for each, ref in zip(lists[2:], known.state, strict=True):
            if (each[0] if each else None) is not (None if ref is None else ref()):
                return False
        return True

    def _look(self, lists: Sequence[Sequence[Tensor]], counts_at: int | None) -> None:
        parameters, *beside = lists
        for i, parameter in enumerate(parameters):
            for each in (found[i] for found in beside if i < len(found)):
                if not self._exact_order or not isinstance(each, self._torch.Tensor):
                    continue
                if not in_same_order(parameter, each):
                    self.trouble = IN_ANOTHER_ORDER
        for found in (found for number, found in enumerate(lists) if number and number != counts_at):
            if any(
                each.dtype != parameter.dtype
                for each, parameter in zip(found, parameters, strict=False)
                if isinstance(each, self._torch.Tensor)
            ):
                self.trouble = OF_ANOTHER_TYPE
        if counts_at is not None:
            single = self._torch.float32
            counts = lists[counts_at]
            self._counts_apart = any(
                count.dtype != single or count.device != parameter.device
                for count, parameter in zip(counts, parameters, strict=True)
            )
        self._counts = {key: each for key, each in self._counts.items() if each.is_needed}
        first = [each[0] if each else None for each in lists[2:]]
        self._looked_at[id(parameters[0])] = _Looked(
            [each.dtype for each in parameters],
            list(map(self._stride, parameters)),
            list(map(self._stride, lists[1])),
            [list(map(id, each)) for each in (lists[0], *lists[2:])],
            [None if each is None else weakref.ref(each) for each in first],
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
        found = self._counts.get(id(theirs))
        if found is None or not found.follows(theirs):
            tensor = theirs.to(device=parameter.device, dtype=self._torch.float32)
            found = self._counts[id(theirs)] = StepCount(theirs, tensor)
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
    """A step count where fused kernels want it, beside the job's own."""

    __slots__ = ("_theirs", "_version", "tensor")

    def __init__(self, theirs: Tensor, tensor: Tensor) -> None:
        self.tensor = tensor
        self._theirs = weakref.ref(theirs)
        self._version = theirs._version

    @property
    def is_needed(self) -> bool:
        return self._theirs() is not None

    def follows(self, theirs: Tensor) -> bool:
        """Whether nobody has set theirs meanwhile."""
        return self._theirs() is theirs and theirs._version == self._version

    def seen(self) -> None:
        """Theirs was counted on, as ours was."""
        theirs = self._theirs()
        if theirs is not None:
            self._version = theirs._version


def choose(
    torch: ModuleType, optimizers: Sequence[Optimizer], flags: Mapping[str, bool], *, exact_order: bool
) -> ChosenGroups:
    """Update optimizers' parameters of now with these flags, from their next steps on.

    Raises:
        Refused: this torch updates parameters of one in another way; nothing was changed.
    """
    for module, name in [_update_function(type(optimizer)) for optimizer in optimizers]:
        if (module.__name__, name) not in _PATCHES:
            led = functools.partial(_led, _is_compiling(torch))
            _PATCHES[module.__name__, name] = Patch(module, name, led)
        _PATCHES[module.__name__, name].put_on()
    made = []
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        updates = GroupUpdates(torch, flags, exact_order=exact_order)
        made.append(updates)
        for parameter in cast("list[Tensor]", group["params"]):
            _CHOSEN[id(parameter)] = (_forgetting(parameter), updates)
    return ChosenGroups(made)


class ChosenGroups:
    """Groups of optimizers that are updated in another way."""

    def __init__(self, groups: Sequence[GroupUpdates]) -> None:
        self._groups = groups

    def trouble(self) -> str | None:
        """Why they are updated as the job says after all; None where they are not."""
        return next((each.trouble for each in self._groups if each.trouble is not None), None)

    def undo(self) -> None:
        """Their next updates are as the job says. May be called in the middle of a step."""
        for key, (_, updates) in list(_CHOSEN.items()):
            if updates in self._groups:
                _CHOSEN.pop(key, None)
        if not _CHOSEN:
            for patch in _PATCHES.values():
                patch.take_off()


def flags_of(optimizer: Optimizer) -> Iterator[Mapping[str, bool]]:
    """Of each parameter: the flags that stand in for its group's; none where it is updated with those."""
    for group in optimizer.param_groups:
        for parameter in cast("list[Tensor]", group["params"]):
            found = _chosen(parameter)
            yield {} if found is None else found.flags


def _forgetting(parameter: Tensor) -> weakref.ref[Tensor]:
    key = id(parameter)

    def forget(ref: weakref.ref[Tensor]) -> None:
        entry = _CHOSEN.get(key)
        if entry is not None and entry[0] is ref:
            del _CHOSEN[key]

    return weakref.ref(parameter, forget)


def _chosen(parameter: object) -> GroupUpdates | None:
    entry = _CHOSEN.get(id(parameter))
    return entry[1] if entry is not None and entry[0]() is parameter else None


def _led(is_compiling: Callable[[], bool], original: Update) -> Update:
    """The update function that looks whether a group is chosen; one that is being compiled never is."""
    counts_at = _counts_at(original)
    fewest = max(2, 0 if counts_at is None else counts_at + 1)

    @functools.wraps(original)
    def update(*lists: Sequence[Tensor], **settings: object) -> object:
        if is_compiling() or len(lists) < fewest or not lists[0]:
            return original(*lists, **settings)
        updates = _chosen(lists[0][0])
        if updates is None:
            return original(*lists, **settings)
        return updates.update(original, counts_at, lists, settings)

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
