"""Calls of a block that run once more in backward: tried out first, and the second time as the first.

In: a call of the block. The first one, in training and not, runs under the guard that puts everything back: a
forward that changes what it keeps would do so twice, and the remedy goes. Each call notes what it depends on:
every random state, training flags, which parameters stand in the block, and plain values (numbers, strings)
of its attributes and of globals that its code reads. They hold again while backward makes it once more.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from types import FunctionType, ModuleType
from typing import cast

from ...job_state import rng_state
from ...job_state.bytecode_names import globals_read
from ...job_state.installed_code import is_library
from ...job_state.side_effect_scan import ScanFindings
from ...job_state.state_guard import Guarded, StateGuard, said_of
from ...live_torch.handler_errors import let_through
from ...live_torch.module_checks import derived_attributes, user_hooks
from ...live_torch.pytrees import map_tree
from ...live_torch.torch_types import Module, Tensor
from ..model_calls.call_layers import Call, transformed

Restore = Callable[[], object]
MOST_SETTINGS = 200
_PLAIN = (bool, int, float, complex, str, bytes, tuple, type(None))


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
        self._globals, self._settings = _read_by(block)
        self._transformed = transformed(torch)
        self._checkpoint: Call = import_module("torch.utils.checkpoint").checkpoint

    def layer(self, below: Call) -> Call:
        """The layer to lead the block's calls through."""
        grad_enabled: Callable[[], bool] = self._torch.is_grad_enabled

        def call(*args: object, **kwargs: object) -> object:
            if self.broken is not None or not grad_enabled() or self._transformed():
                return below(*args, **kwargs)
            block = cast(Module, self._block())
            if any(True for _ in user_hooks([block])):  # the job has set them meanwhile, to be called once
                return below(*args, **kwargs)
            generators = self._generators.get(block.training)
            if generators is None:
                generators = self._try_out(block, below, args, kwargs)
            if generators is None:
                return below(*args, **kwargs)
            # torch is given no inputs: it would not let the job write into them before backward.
            again = _TwiceAlike(partial(self._state, generators), below, self._copy, (args, kwargs))
            return self._checkpoint(again, use_reentrant=False, preserve_rng_state=False)

        return call

    def _try_out(
        self, block: Module, below: Call, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> list[object] | None:
        """One forward on copies, without a trace: generators that it may draw from; None to leave it."""
        findings, parameters = self._findings, list(block.parameters())
        if not all(each.is_leaf for each in parameters):
            return None  # the job has lent it others (functional_call): a call of its own will come
        guarded = Guarded(
            modules=[block],
            parameters=parameters,
            others=findings.globals,
            derived=derived_attributes([block]),
        )
        try:
            # Over the job's own, which see what a call of its own saves.
            unseen = self._torch.autograd.graph.saved_tensors_hooks(_as_it_is, _as_it_is)
            with unseen, StateGuard(self._torch, guarded, trial=True) as guard:
                given = cast("list[object]", map_tree(list(args), self._copy))
                below(*given, **cast("dict[str, object]", map_tree(dict(kwargs), self._copy)))
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
        """What to call so that a forward finds everything as it is now."""
        found: list[Restore] = rng_state.capture(self._torch, generators)
        for part in cast(Module, self._block()).modules():
            held = vars(part)
            found.append(partial(held.update, _plain(held)))
            for name in ("_parameters", "_buffers"):
                found.append(partial(held[name].update, dict(held[name])))
            found += [
                partial(each.requires_grad_, each.requires_grad)
                for each in cast("Mapping[str, Tensor | None]", held["_parameters"]).values()
                if each is not None and each.is_leaf
            ]
        for space, names in self._globals:
            found.append(
                partial(space.update, _plain({name: space[name] for name in names if name in space}))
            )
        found += [partial(held.update, _plain(held)) for held in self._settings]
        return found


def _plain(held: Mapping[str, object]) -> dict[str, object]:
    """Values that are changed by another one in their place."""
    return {name: value for name, value in list(held.items()) if isinstance(value, _PLAIN)}


def _read_by(block: Module) -> tuple[list[tuple[dict[str, object], list[str]]], list[dict[str, object]]]:
    """What the block's code, and functions that it calls, read beside its own attributes.

    Names of globals, with the modules where they stand; and what objects hold that are its attributes or such
    globals: settings, most of them.
    """
    objects = [value for part in block.modules() for value in vars(part).values()]
    waiting = [
        method
        for kind in {kind for part in block.modules() for kind in type(part).__mro__}
        if not is_library(kind.__module__)
        for method in vars(kind).values()
        if isinstance(method, FunctionType)
    ]
    found: dict[int, tuple[dict[str, object], list[str]]] = {}
    seen = set[FunctionType]()
    while waiting:
        function = waiting.pop()
        if function in seen or is_library(function.__module__ or ""):
            continue
        seen.add(function)
        for space, name in globals_read(function):
            value = space[name]
            if isinstance(value, FunctionType):
                waiting.append(value)
            elif isinstance(value, _PLAIN):
                names = found.setdefault(id(space), (space, []))[1]
                names += [] if name in names else [name]
            else:
                objects.append(value)
    return list(found.values()), _settings_of(objects)


def _settings_of(objects: list[object]) -> list[dict[str, object]]:
    """What these hold, and what is held in that: dicts and the attributes of plain objects."""
    found: dict[int, dict[str, object]] = {}
    while objects and len(found) < MOST_SETTINGS:
        value = objects.pop()
        if isinstance(value, FunctionType | ModuleType | type) or hasattr(value, "_parameters"):
            continue
        held = value if isinstance(value, dict) else getattr(value, "__dict__", None)
        if isinstance(held, dict) and not hasattr(value, "element_size") and id(held) not in found:
            found[id(held)] = held
            objects += held.values()
    return list(found.values())


def _as_it_is(tensor: object) -> object:
    return tensor


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
        self._given, self._copies = given, (map_tree(list(given[0]), copy), map_tree(dict(given[1]), copy))
        self._first: list[Restore] | None = None

    def __call__(self) -> object:
        args, kwargs = self._given
        if self._first is None:
            self._first, self._given = (
                self._state(),
                cast("tuple[list[object], dict[str, object]]", self._copies),
            )
            return self._below(*args, **kwargs)
        now = self._state()
        try:
            for restore in self._first:
                restore()
            return self._below(*args, **kwargs)
        finally:
            for restore in now:
                restore()
