"""Calls of one module as compiled code, for those kinds of arguments that were rehearsed, else eagerly.

A kind is the shapes, types and gradient flags of the arguments. It is rehearsed once the backward of a
few eager calls of its like has been seen, where that matters; another kind than the first only when it
keeps coming, so the last short batch of an epoch costs no compilation. Evaluation stays eager.
Whatever a rehearsal finds wrong leaves training as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Protocol

from ...live_torch.compiled_code import compiled_graphs
from ...live_torch.pytrees import leaves
from .backward_watch import Backwards
from .call_layers import Call, CallableModule, autocast_states

FEWEST_CALLS = 3  # of another kind of arguments, before it is compiled too
MOST_KINDS = 4
MOST_MET = 64  # kinds of arguments that are counted
STORM = 6  # graphs compiled outside rehearsals, more of which are no accident

_PLAIN = (int, float, bool, str, type(None))


class Rehearses(Protocol):
    """Tries a call out before training meets it."""

    @property
    def torch(self) -> ModuleType: ...
    @property
    def module(self) -> CallableModule: ...
    def why_not(
        self, eager: Call, compiled: Call, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> str | None: ...


class CompiledCall:
    """The compiled calls of one module.

    Args:
        compiled: `torch.compile` of the module's call.
        dynamic: Sizes are left open: all of them are one kind.
        backwards: Looks at what comes back into the calls; None where any backward will do.
        depends: What else the compiled code holds for: another value makes another kind.
    """

    def __init__(
        self,
        rehearsal: Rehearses,
        compiled: Call,
        *,
        dynamic: bool,
        backwards: Backwards | None = None,
        depends: Callable[[], object] = lambda: None,
    ) -> None:
        self._failed: str | None = None
        self.graphs = 0  # that dynamo compiled in its calls
        self._backwards = backwards
        self._depends = depends
        self._rehearsal = rehearsal
        self._compiled = compiled
        self._dynamic = dynamic
        self._ready: dict[object, bool] = {}
        self._met: dict[object, int] = {}
        self._autocast = autocast_states(rehearsal.torch)

    def layer(self, eager: Call) -> Call:
        """The layer to lead the module's calls through."""
        module, compiled, ready = self._rehearsal.module, self._compiled, self._ready
        backwards = self._backwards
        grad_enabled: Callable[[], bool] = self._rehearsal.torch.is_grad_enabled

        def call(*args: object, **kwargs: object) -> object:
            if not module.training or not grad_enabled() or self.broken is not None:
                return eager(*args, **kwargs)
            kind = self.kind(args, kwargs)
            state = ready.get(kind)
            if state is None:
                state = self._rehearse(kind, eager, args, kwargs)
            if state:
                before = compiled_graphs()
                result = compiled(*args, **kwargs)
                self.graphs += compiled_graphs() - before
            else:
                result = eager(*args, **kwargs)
            if backwards is not None and state is not False:
                backwards.watch(kind, result)
            return result

        return call

    @property
    def broken(self) -> str | None:
        """Why it is not to be used; None while all is well."""
        if self._failed is None and self._backwards is not None:
            return self._backwards.trouble
        return self._failed

    @property
    def rehearsed(self) -> int:
        """Kinds of arguments that were compiled for, well or not."""
        return len(self._ready)

    def kind(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """What distinguishes these arguments for the compiler."""
        tensor = self._rehearsal.torch.Tensor
        named = [kwargs[name] for name in kwargs] if kwargs else []
        found: list[object] = [self._autocast(), self._depends(), *kwargs]
        for leaf in leaves([args, named]):
            if isinstance(leaf, tensor):
                sizes = leaf.dim() if self._dynamic else leaf.shape
                found.append((sizes, leaf.dtype, leaf.requires_grad))
            else:
                found.append(leaf if isinstance(leaf, _PLAIN) else type(leaf))
        return tuple(found)

    def _rehearse(
        self, kind: object, eager: Call, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> bool | None:
        """Whether its like may be compiled; None while that is not to be said yet."""
        if self._ready:
            met = self._met[kind] = self._met.get(kind, 0) + 1
            if len(self._met) > MOST_MET:
                self._met.clear()  # every batch has its own shape
            if len(self._ready) >= MOST_KINDS:
                return False
            if met < FEWEST_CALLS:
                return None
        compiled = self._compiled
        if self._backwards is not None:
            if not self._backwards.enough(kind):
                return None
            part = self._backwards.part_used(kind)
            if self.broken is not None:
                return False
            eager, compiled = part(eager), part(compiled)
        before = compiled_graphs()
        why = self._rehearsal.why_not(eager, compiled, args, kwargs)
        self.graphs += compiled_graphs() - before
        if why is not None and not self._ready:
            self._failed = why
        self._ready[kind] = why is None
        return why is None


class StormWatch:
    """Counts graphs that were compiled while it is on, less those of rehearsals."""

    def __init__(self, calls: list[CompiledCall]) -> None:
        self._calls = calls
        self._kinds = -1
        self._graphs = 0

    def trouble(self) -> str | None:
        """Why the compiled code must go; None while it does well."""
        for call in self._calls:
            if call.broken is not None:
                return call.broken
        kinds, now = sum(call.rehearsed for call in self._calls), compiled_graphs()
        if kinds != self._kinds:
            self._kinds, self._graphs = kinds, now
        if now - self._graphs >= STORM:
            return f"it was compiled {now - self._graphs} times more: what it is called with keeps changing"
        return None
