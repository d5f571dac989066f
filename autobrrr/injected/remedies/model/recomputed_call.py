"""Calls of a block that run once more in backward: tried out first, and left plain where that might fail.

In: a call of the block. The first one, in training and not, runs under the guard that puts everything back:
a forward that changes what it keeps would do so twice, and the remedy goes. A call is left plain where
contexts of the job's own stand around it, which may be gone in its backward, where it is lent parameters, and
where it is given more than tensors and plain values. Random states, plain attributes and submodules, and
which parameters are trained are in backward as they were in the forward: with others it could keep other
tensors, which is an error there. Whatever else a forward reads is as the job has left it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import cast

from ...job_code.side_effect_scan import ScanFindings
from ...job_code.unread_code import unread_code_refused
from ...job_state import rng_state
from ...job_state.state_guard import Guarded, StateGuard, said_of
from ...live_torch.dispatch_modes import foreign_mode, function_modes
from ...live_torch.handler_errors import let_through
from ...live_torch.module_call_slot import as_within_a_call
from ...live_torch.module_checks import derived_attributes, user_hooks
from ...live_torch.pytrees import leaves, map_call
from ...live_torch.torch_types import Abstain, Module, Tensor
from ..model_calls.call_layers import Call, transformed
from ..model_calls.call_results import PLAIN, seen_through

Restore = Callable[[], object]


class RecomputedCall:
    """The calls of one block.

    Args:
        findings: What its forward code reaches.

    Attributes:
        broken: Why it can't be computed again; None while all is well.
    """

    def __init__(self, torch: ModuleType, block: Module, findings: ScanFindings) -> None:
        self.broken: str | None = None
        self._torch = torch
        self._block = weakref.ref(block)
        self._findings = findings
        self._generators: dict[bool, list[object]] = {}  # of the user's own, by training: it was tried out
        self._given = seen_through(torch)
        self._parameters = list(map(id, block.parameters()))
        self._surroundings = Surroundings(torch)
        self._checkpoint: Call = import_module("torch.utils.checkpoint").checkpoint

    def layer(self, below: Call) -> Call:
        """The layer to lead the block's calls through."""
        grad_enabled: Callable[[], bool] = self._torch.is_grad_enabled

        def within(*args: object, **kwargs: object) -> object:
            # In backward, too, a block that calls itself does so plainly.
            with as_within_a_call(self._block()):
                return below(*args, **kwargs)

        def call(*args: object, **kwargs: object) -> object:
            if self.broken is not None or not grad_enabled() or not self._may_run_twice(args, kwargs):
                return below(*args, **kwargs)
            block = cast(Module, self._block())
            generators = self._generators.get(block.training)
            if generators is None:
                generators = self._try_out(block, below, args, kwargs)
            if generators is None:
                return below(*args, **kwargs)
            # torch is given no inputs: it would not let the job write into them before backward.
            again = _TwiceAlike(partial(self._state, generators), within, self._copy, (args, kwargs))
            return self._checkpoint(again, use_reentrant=False, preserve_rng_state=False)

        return call

    def _may_run_twice(self, args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
        """Whether nothing is known of this call that its backward might not find again."""
        block = cast(Module, self._block())
        return (
            self._surroundings.are_usual()
            and list(map(id, block.parameters())) == self._parameters
            and all(isinstance(leaf, self._given) for leaf in leaves([args, kwargs]))
            # The job may have set hooks meanwhile, to be called once.
            and not any(True for _ in user_hooks([block]))
        )

    def _try_out(
        self, block: Module, below: Call, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> list[object] | None:
        """One forward on copies, without a trace: generators that it may draw from; None to leave it."""
        guarded = Guarded(
            modules=[block],
            parameters=list(block.parameters()),
            others=self._findings.globals,
            derived=derived_attributes([block]),
        )
        try:
            with StateGuard(self._torch, guarded, trial=True) as guard:
                given, named = map_call(args, kwargs, self._copy)
                with unread_code_refused(self._findings.read):
                    below(*given, **named)
        except Abstain as reason:
            self.broken = str(reason)
            return None
        except Exception as error:  # noqa: BLE001  the job's own call will say what is wrong with it
            let_through(error)
            self.broken = f"a forward fails on copies of its arguments: {error}"
            return None
        if guard.changes or guard.writes:
            wrote = "a forward writes to tensors that its modules keep"
            self.broken = said_of(guard.changes) if guard.changes else wrote
            return None
        self._generators[block.training] = guard.generators
        return guard.generators

    def _copy(self, leaf: object) -> object:
        if not isinstance(leaf, self._torch.Tensor):
            return leaf
        return leaf.detach().clone().requires_grad_(leaf.requires_grad)

    def _state(self, generators: list[object]) -> list[Restore]:
        """What to call so that a forward draws, and keeps for backward, what it would now.

        No parameter is held by it: a job may swap its parameters while a loss lives.
        """
        found: list[Restore] = rng_state.capture(self._torch, generators)
        for part in cast(Module, self._block()).modules():
            held = vars(part)
            plain = {name: value for name, value in held.items() if isinstance(value, PLAIN)}
            found += [partial(held.update, plain), partial(held["_modules"].update, dict(held["_modules"]))]
            trained: dict[str, Tensor | None] = held["_parameters"]
            found += [
                partial(_set_trained, trained, name, each.requires_grad)
                for name, each in trained.items()
                if each is not None
            ]
        return found


class Surroundings:
    """What settings and contexts of the process a forward finds: asked first between two steps of the job."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch
        self._transformed = transformed(torch)
        self._forward_ad = torch.autograd.forward_ad
        names = [name for name in vars(torch._C) if name.startswith("_get_") and name.endswith("_enabled")]
        read = [getattr(torch._C, name, None) for name in (*names, "_get_sdp_priority_order")]
        self._read: list[Callable[[], object]] = [torch.get_default_dtype, *(each for each in read if each)]
        allowed = getattr(torch._C._autograd, "_saved_tensors_hooks_is_enabled", None)
        self._hooks_allowed: Callable[[], bool] = allowed or (lambda: True)
        self._usual = self._settings()

    def are_usual(self) -> bool:
        """Whether no context of the job's own is known to stand around the code that runs now."""
        return (
            not self._transformed()
            and getattr(self._forward_ad, "_current_level", -1) < 0
            and foreign_mode(self._torch) is None
            and self._hooks_allowed()
            and self._settings() == self._usual
        )

    def _settings(self) -> list[object]:
        # Function modes that `foreign_mode` lets pass: they say where tensors are made.
        return [*(read() for read in self._read), *map(id, function_modes(self._torch))]


def _set_trained(parameters: Mapping[str, Tensor | None], name: str, trained: bool) -> None:
    parameter = parameters.get(name)
    if parameter is not None and parameter.is_leaf and parameter.requires_grad != trained:
        parameter.requires_grad_(trained)


class _TwiceAlike:
    """A call that finds state and inputs as the first time: the job may write into them before backward."""

    def __init__(
        self,
        state: Callable[[], list[Restore]],
        below: Call,
        copy: Callable[[object], object],
        given: tuple[Sequence[object], Mapping[str, object]],
    ) -> None:
        self._state, self._below = state, below
        self._given, self._copies = given, map_call(*given, copy)
        self._first: list[Restore] | None = None

    def __call__(self) -> object:
        args, kwargs = self._given
        if self._first is None:
            self._first, self._given = self._state(), self._copies
            return self._below(*args, **kwargs)
        now = self._state()
        try:
            for restore in self._first:
                restore()
            return self._below(*args, **kwargs)
        finally:
            for restore in now:
                restore()
