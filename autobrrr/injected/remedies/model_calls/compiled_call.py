"""Calls of one module as compiled code, for those kinds of arguments that were rehearsed, else eagerly.

A kind is the shapes, types and gradient flags of the arguments. It is rehearsed once the backward of a
few eager calls of its like has been seen, where that matters; another kind than the first only when it
keeps coming, so the last short batch of an epoch costs no compilation. Evaluation stays eager, and so does
every call while hooks are there that the job has set since: they would see what it can't use, or nothing.
Whatever a rehearsal finds wrong leaves training as it was; so does a kind whose compiled calls are slower.
Where a compiled call raises after all, the eager one answers, and none is compiled any more.
"""

from __future__ import annotations

from collections.abc import Callable

from ...live_torch.compiled_code import compiled_graphs
from ...live_torch.module_checks import hook_dicts
from ...live_torch.pytrees import leaves
from .backward_watch import Backwards, Counted
from .call_layers import Call, autocast_states, or_plainly, watched_or_transformed
from .rehearsal import Rehearsal
from .timed_calls import CallTimes

FEWEST_CALLS = 3  # of another kind of arguments, before it is compiled too
MOST_KINDS = 4
MOST_MET = 64  # kinds of arguments that are counted
STORM = 6  # graphs compiled outside rehearsals, more of which are no accident

_PLAIN = (int, float, bool, str, type(None))


class CompiledCall:
    """The compiled calls of one module.

    Args:
        compiled: `torch.compile` of the module's call.
        dynamic: Sizes are left open: all of them are one kind.
        backwards: Looks at what comes back into the calls; None where any backward will do.
        depends: What else the compiled code holds for: another value makes another kind.
        holds: Whether the module still has the code that is compiled; else it is called eagerly.

    Attributes:
        slower: Why no kind that was timed is called so; None before one was, and while one is.
        times: What a call of each kind takes either way, those that stay eager too.
        count: Training calls of each kind that was timed.
    """

    def __init__(
        self,
        rehearsal: Rehearsal,
        compiled: Call,
        *,
        dynamic: bool,
        backwards: Backwards | None = None,
        depends: Callable[[], object] = lambda: None,
        holds: Callable[[], bool] = lambda: True,
    ) -> None:
        self._failed: str | None = None
        self.graphs = 0  # that dynamo compiled in its calls
        self._backwards = backwards
        self._depends, self._holds = depends, holds
        self._rehearsal = rehearsal
        self._compiled = compiled
        self._dynamic = dynamic
        self._ready: dict[object, bool] = {}
        self._met: dict[object, int] = {}
        self.slower: str | None = None
        self.times: dict[object, CallTimes] = {}
        self.count: dict[object, int] = {}
        self._autocast = autocast_states(rehearsal.torch)
        self._hooks = hook_dicts(rehearsal.module)
        self._known_hooks = sum(map(len, self._hooks))  # torch's own: others were refused

    def layer(self, eager: Call) -> Call:
        """The layer to lead the module's calls through."""
        rehearsal, ready = self._rehearsal, self._ready
        compiled = or_plainly(rehearsal.torch, self._compiled, eager, self._tell)
        backwards, count = self._backwards, self.count
        grad_enabled: Callable[[], bool] = rehearsal.torch.is_grad_enabled
        in_larger = watched_or_transformed(rehearsal.torch)
        hooks, known, holds = self._hooks, self._known_hooks, self._holds

        def call(*args: object, **kwargs: object) -> object:
            if not rehearsal.module.training or not grad_enabled() or self.broken is not None:
                return eager(*args, **kwargs)
            if sum(map(len, hooks)) != known:  # no guard of dynamo's: those cost ten times as much
                return eager(*args, **kwargs)
            if in_larger() or not holds():
                return eager(*args, **kwargs)
            kind = self.kind(args, kwargs)
            state = ready.get(kind)
            count[kind] = count.get(kind, 0) + 1
            if state is None:
                state = self._rehearse(kind, eager, args, kwargs)
            read: list[Counted] = []
            if backwards is not None and state is None:
                read = backwards.read_by(rehearsal.module, (args, kwargs))
            if state:
                before = compiled_graphs()
                result = compiled(*args, **kwargs)
                self.graphs += compiled_graphs() - before
            else:
                result = eager(*args, **kwargs)
            if backwards is not None and state is not False:
                backwards.watch(kind, result, read)
            return result

        return call

    @property
    def broken(self) -> str | None:
        """Why it is not to be used; None while all is well."""
        if self._failed is None and self._backwards is not None:
            return self._backwards.trouble
        return self._failed

    def _tell(self, why: str | None) -> None:
        self._failed = None if why is None else f"a call in training failed so: {why}"

    @property
    def rehearsed(self) -> int:
        """Kinds of arguments that were compiled for, well or not."""
        return len(self._ready)

    def kind(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """What distinguishes these arguments for the compiler."""
        tensor = self._rehearsal.torch.Tensor
        named = [kwargs[name] for name in kwargs] if kwargs else []
        found: list[object] = [self._autocast(), self._depends(), *kwargs]
        tensors: list[int] = []
        for leaf in leaves([args, named]):
            if isinstance(leaf, tensor):
                sizes = leaf.dim() if self._dynamic else leaf.shape
                found.append((sizes, leaf.dtype, leaf.requires_grad))
                tensors.append(id(leaf))
            else:
                found.append(leaf if isinstance(leaf, _PLAIN) else type(leaf))
        if len(set(tensors)) < len(tensors):  # one is given twice
            found += map(tensors.index, tensors)
        return tuple(found)

    def _rehearse(
        self, kind: object, eager: Call, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> bool | None:
        """Whether its like may be compiled; None while that is not to be said yet."""
        if len(self.count) > MOST_MET:  # every batch has its own shape
            for other in [each for each in self.count if each not in self._ready]:
                del self.count[other]
        if self._ready:
            met = self._met[kind] = self._met.get(kind, 0) + 1
            if len(self._met) > MOST_MET:
                self._met.clear()  # every batch has its own shape
            if len(self._ready) >= MOST_KINDS:
                return False
            if met < FEWEST_CALLS:
                return None
        compiled = self._compiled
        if self._backwards is not None and not self._backwards.enough(kind):
            return None
        if self._rehearsal.obstacle() is not None:
            return None
        if self._backwards is not None:
            part = self._backwards.part_used(kind)
            if self.broken is not None:
                return False
            eager, compiled = part(eager), part(compiled)
        before = compiled_graphs()
        why = self._rehearsal.why_not(eager, compiled, args, kwargs)
        pays = why is None and self._pays(kind, eager, compiled, args, kwargs)
        self.graphs += compiled_graphs() - before
        if why is not None and not self._ready:
            self._failed = why
        self._ready[kind] = pays
        return pays

    def _pays(
        self, kind: object, eager: Call, compiled: Call, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> bool:
        """Whether calls of this kind are no slower so, as far as timing them on copies can tell."""

        def as_called(*given: object, **named: object) -> object:
            self.kind(given, named)
            return compiled(*given, **named)

        found = self._rehearsal.times(eager, as_called, args, kwargs)
        if found is None:
            return True
        self.times[kind] = found
        why = found.why_slower
        paid = any(self._ready.values())
        self.slower = None if why is None or paid else why
        return why is None


class CallsWatch:
    """Looks at calls at step boundaries: whether they must go, and what they take either way."""

    def __init__(self, calls: list[CompiledCall]) -> None:
        self._calls = calls
        self._steps = 0
        for call in calls:
            call.count.clear()

    def trouble(self) -> str | None:
        """Why these calls must go; None while they do well."""
        self._steps += 1
        for call in self._calls:
            if call.broken is not None:
                return call.broken
        slower = [call.slower for call in self._calls]
        return slower[0] if slower and all(slower) else None

    def times(self, known: int = 0) -> dict[str, float] | None:
        """Nanoseconds a step in timed calls, as they were and as they are led.

        A kind that stays eager takes either way the same. None where no more kinds were timed than are known.
        """
        kinds = sum(len(call.times) for call in self._calls)
        if not self._steps or kinds <= known:
            return None
        found = dict.fromkeys(("plain_ns", "other_ns", "least_ns", "most_ns"), 0.0)
        for call in self._calls:
            for kind, each in call.times.items():
                share = call.count.get(kind, 0) / self._steps
                stays = each.why_slower is not None and call.slower is None
                found["plain_ns"] += share * each.plain_ns
                for name in ("other_ns", "least_ns", "most_ns"):
                    found[name] += share * (each.plain_ns if stays else getattr(each, name))
        return {**found, "kinds": float(kinds), "graphs": float(sum(call.graphs for call in self._calls))}


class StormWatch(CallsWatch):
    """Counts graphs that were compiled while it is on, less those of rehearsals."""

    def __init__(self, calls: list[CompiledCall]) -> None:
        super().__init__(calls)
        self._kinds = -1
        self._graphs = 0

    def trouble(self) -> str | None:
        """The same, and where calls are compiled again and again."""
        why = super().trouble()
        kinds, now = sum(call.rehearsed for call in self._calls), compiled_graphs()
        if kinds != self._kinds:
            self._kinds, self._graphs = kinds, now
        if why is None and now - self._graphs >= STORM:
            return f"it was compiled {now - self._graphs} times more: what it is called with keeps changing"
        return why
