"""Calls of a model whose weights were laid out anew: each kind of call is tried out before training makes it.

In: a call on its real arguments. A forward and a backward run with the weights as they were and as they
are now, under the guard that puts everything back; where no gradient is wanted, a forward alone. A model that
reads its activations as flat memory (`view`) fails there, or later in a branch that was not met: the old
layout comes back, and the call is made with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ...live_torch.dispatch_modes import unseen
from ...live_torch.pytrees import leaves
from ...live_torch.torch_types import Tensor
from ..model_calls.call_layers import Call, autocast_states, or_plainly
from ..model_calls.rehearsal import Rehearsal

MOST_KINDS = 16

_PLAIN = (int, float, bool, str, type(None))


@dataclass(slots=True)
class Tried:
    """What is known of one model; kept while a session lasts."""

    kinds: set[object] = field(default_factory=set)
    broken: str | None = None


class LaidOut:
    """The calls of one model.

    Args:
        plain: The weights, and a copy of the values of each in the layout that it had.
        give_up: Brings the old layout back.
    """

    def __init__(
        self,
        rehearsal: Rehearsal,
        tried: Tried,
        plain: Callable[[], list[tuple[Tensor, Tensor]]],
        give_up: Callable[[], None],
    ) -> None:
        self.tried = tried
        self._rehearsal = rehearsal
        self._plain = plain
        self._give_up = give_up
        self._autocast = autocast_states(rehearsal.torch)

    def layer(self, below: Call) -> Call:
        """The layer to lead the model's calls through."""
        tried = self.tried
        laid_out = or_plainly(self._rehearsal.torch, below, below, self._tell)

        def call(*args: object, **kwargs: object) -> object:
            if tried.broken is None:
                with unseen():
                    kind = self._kind(args, kwargs)
                if kind not in tried.kinds:
                    self._try_out(kind, below, args, kwargs)
            changed = laid_out if tried.broken is None else below
            return changed(*args, **kwargs)

        return call

    def _tell(self, why: str | None) -> None:
        if why is not None:
            self._end(f"a call in training failed with the layout on: {why}")

    def _end(self, why: str) -> None:
        self.tried.broken = why
        self._give_up()

    def _kind(self, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        torch = self._rehearsal.torch
        found: list[object] = [*self._autocast(), self._rehearsal.module.training, torch.is_grad_enabled()]
        for leaf in leaves([list(args), list(kwargs), list(kwargs.values())]):
            if isinstance(leaf, torch.Tensor):
                found.append((leaf.shape, leaf.dtype, leaf.stride(), leaf.requires_grad))
            else:
                found.append(leaf if isinstance(leaf, _PLAIN) else type(leaf))
        return tuple(found)

    def _try_out(
        self, kind: object, below: Call, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> None:
        if len(self.tried.kinds) >= MOST_KINDS:
            why: str | None = "what the model is called with keeps changing"
        elif (obstacle := self._rehearsal.obstacle()) is not None:
            why = obstacle
        elif self._rehearsal.module.training and self._rehearsal.torch.is_grad_enabled():
            why = self._with_gradients(below, args, kwargs)
        else:
            why = self._rehearsal.forward_fails(below, args, kwargs)
        if why is None:
            self.tried.kinds.add(kind)
        else:
            self._end(f"the layout does not fit this model: {why}")

    def _with_gradients(
        self, below: Call, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> str | None:
        plain = self._plain()
        anew = [(weight, weight.data) for weight, _ in plain]

        def on(values: list[tuple[Tensor, Tensor]]) -> Call:
            def call(*given: object, **named: object) -> object:
                _put(values)
                return below(*given, **named)

            return call

        try:
            return self._rehearsal.why_not(on(plain), on(anew), args, kwargs)
        finally:
            _put(anew)


def _put(values: list[tuple[Tensor, Tensor]]) -> None:
    for weight, data in values:
        weight.data = data
