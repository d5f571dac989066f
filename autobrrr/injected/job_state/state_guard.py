"""Around every replay: what it could touch is kept, and put back bit for bit.

Random states, gradients, buffers and other tensors that modules hold (with their version
counters), the Python state of the modules and of what they are called with, grad mode, and the hooks that
must stay silent. Signal handlers of the job's run when all that has been put back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import ModuleType

from ..job_code.unread_code import ReadCode, UnreadCode, nothing_collected
from ..live_torch.handler_errors import let_through
from ..live_torch.module_call_slot import silence
from ..live_torch.module_checks import HOOK_DICTS
from ..live_torch.pytrees import leaves
from ..live_torch.torch_types import Abstain, Module, Tensor, is_tensor
from . import rng_state
from .held_signals import HeldSignals
from .hushed_warnings import hushed
from .kept_tensor import KeptTensor
from .module_state import ModuleState
from .threads_beside import thread_beside

_OWN = __name__.partition(".")[0]
_ARGUMENT = "an argument"
_TENSOR_NS = 40_000  # copied, compared and put back


@dataclass(slots=True)
class Guarded:
    """What one guard has to keep: the same for all replays of a tape."""

    modules: list[Module]
    parameters: list[Tensor]
    others: list[tuple[str, object]] = field(default_factory=list)  # what code can reach: globals, arguments
    written: list[Tensor] = field(
        default_factory=list
    )  # parameters that forward code may write through .data
    derived: set[str] = field(default_factory=set)  # attributes that torch's own hooks set anew each time
    longest_ns: int | None = None  # what a pause may take, where that is bounded
    read: ReadCode = field(default_factory=ReadCode)  # code that may run
    accumulates: bool = False  # the replay can't but write .grad: modules get twins of their parameters

    def release(self) -> None:
        """Let go of everything."""
        for held in (self.modules, self.parameters, self.others, self.written):
            held.clear()


class StateGuard:
    """One replay's guard: a context manager; `changes` names module state that had changed.

    Args:
        trial: A module runs under a guard for the first time: the parameters are kept by value as
            well, and all are compared by value. Later their version counters, checked here, are enough.

    Attributes:
        writes: A tensor that is kept, and is no parameter, was written to.
        in_graph: A tensor that is kept leads into a graph of the job's, which a backward would use up.
        generators: Random generators of the user's own that were met.
    """

    def __init__(self, torch: ModuleType, guarded: Guarded, *, trial: bool = False) -> None:
        self.changes: list[str] = []
        self.writes = False
        self.in_graph = False
        self.generators: list[object] = []
        self._trial = trial
        self._touched: set[int] = set()  # parameters that the replay wrote
        self._torch = torch
        self._guarded = guarded
        self._undo = ExitStack()

    def __enter__(self) -> StateGuard:
        # What is kept is soon let go again: no reason for a full collection, which outlasts a pause.
        with nothing_collected(), ExitStack() as undo:  # undone here, if keeping fails half-way
            self._keep(undo)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def _keep(self, undo: ExitStack) -> None:
        """Each thing kept is put back in reverse order."""
        torch, guarded = self._torch, self._guarded
        undo.enter_context(HeldSignals())
        beside = thread_beside()
        if beside is not None:
            raise Abstain(f"{beside} runs on another thread, which may draw random numbers meanwhile")
        undo.enter_context(hushed(torch))
        _lend_cache(undo)
        self._silence(undo)
        if guarded.accumulates:
            self._lend_twins(undo)
        for parameter in guarded.parameters:
            if parameter.grad is not None:
                undo.callback(setattr, parameter, "grad", parameter.grad)
                parameter.grad = None
            else:
                undo.callback(setattr, parameter, "grad", None)
        skipped = {id(parameter) for parameter in guarded.parameters}
        state = ModuleState(torch, guarded.modules, guarded.others, skipped)
        versions = [(parameter, parameter._version) for parameter in guarded.parameters]
        longest_ns = guarded.longest_ns
        if longest_ns is not None and len(state.tensors) * _TENSOR_NS > longest_ns:
            raise Abstain(
                f"to keep the {len(state.tensors)} tensors that the modules hold would take more than a pause"
                f" may ({longest_ns / 1e6:.0f} ms)"
            )
        self.generators = state.generators
        anew = self._made_anew()
        self.in_graph = any(each.grad_fn is not None and id(each) not in anew for each in state.tensors)
        kept = [self._keep_tensor(undo, tensor) for tensor in state.tensors]
        by_value = guarded.parameters if self._trial else guarded.written
        copies = [self._keep_tensor(undo, parameter, only_if_touched=True) for parameter in by_value]
        undo.callback(self._compare, state, versions, copies, kept)
        for restore in rng_state.capture(torch, state.generators):
            undo.callback(restore)
        undo.callback(torch._C._set_grad_enabled, torch.is_grad_enabled())
        if hasattr(torch.backends, "mha"):
            undo.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())

    def _made_anew(self) -> set[int]:
        """Ids of what lies in attributes that torch's own hooks set in each call."""
        parts = [part for module in self._guarded.modules for part in module.modules()]
        return {id(vars(part).get(name)) for part in parts for name in self._guarded.derived}

    def _compare(
        self,
        state: ModuleState,
        versions: list[tuple[Tensor, int]],
        copies: list[KeptTensor],
        kept: list[KeptTensor],
    ) -> None:
        self.writes = any(each.was_written(by_value=self._trial) for each in kept)
        self.changes = [
            name for name in state.restore() if name.rpartition(".")[2] not in self._guarded.derived
        ]
        written = {id(part) for part in self._guarded.written}
        touched = [tensor for tensor, version in versions if tensor._version != version]
        touched += [each.tensor for each in copies if each.was_written(by_value=True)]
        self._touched = {id(tensor) for tensor in touched}
        if any(id(tensor) not in written for tensor in touched):
            self.changes.append("a parameter")

    def _keep_tensor(self, undo: ExitStack, tensor: Tensor, *, only_if_touched: bool = False) -> KeptTensor:
        """Put a tensor's bytes, its shape and its version counter back at the end."""
        kept = KeptTensor(self._torch, tensor)
        undo.enter_context(self._torch.autograd._unsafe_preserve_version_counter(tensor))

        def put_back() -> None:
            if not only_if_touched or id(tensor) in self._touched:
                kept.put_back()

        undo.callback(put_back)
        return kept

    def _lend_twins(self, undo: ExitStack) -> None:
        """Parameters on the same storage with no gradient and no hook of anybody's, DDP's included."""
        twins: dict[int, object] = {}
        for root in self._guarded.modules:
            for part in root.modules():
                if isinstance(part, self._torch.nn.RNNBase):
                    raise Abstain("a recurrent module is trained through a reentrant checkpoint")
                held: dict[str, Tensor | None] = vars(part)["_parameters"]
                for name, parameter in held.items():
                    if parameter is None:
                        continue
                    undo.callback(held.__setitem__, name, parameter)
                    if id(parameter) not in twins:
                        twins[id(parameter)] = self._torch.nn.Parameter(
                            parameter.detach(), requires_grad=parameter.requires_grad
                        )
                    held[name] = twins[id(parameter)]  # type: ignore[assignment]

    def _silence(self, undo: ExitStack) -> None:
        """Our own hooks and the hooks on parameters do not see replays."""
        for parameter in self._guarded.parameters:
            for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
                if hooks := getattr(parameter, name, None):
                    _leave_out(undo, hooks, lambda _: True)
        for module in self._guarded.modules:
            for part in module.modules():
                put_back = silence(part)
                if put_back is not None:
                    undo.callback(put_back)
                for name in HOOK_DICTS:
                    if hooks := getattr(part, name, None):
                        _leave_out(undo, hooks, _is_ours)
        for name in HOOK_DICTS:
            if hooks := getattr(sys.modules["torch.nn.modules.module"], f"_global{name}", None):
                _leave_out(undo, hooks, _is_ours)


def called_with(
    torch: ModuleType, args: Sequence[object], kwargs: Mapping[str, object]
) -> list[tuple[str, object]]:
    """What a call on copies of its tensors is given as it is: generators, objects that it may change."""
    found = leaves([list(args), list(kwargs.values())])
    return [(_ARGUMENT, each) for each in found if not is_tensor(each, torch)]


def _lend_cache(undo: ExitStack) -> None:
    """Parametrized weights that a replay makes are no weights for the job."""
    place = sys.modules.get("torch.nn.utils.parametrize")
    names: dict[str, object] = {} if place is None else vars(place)
    if "_cache" in names:
        undo.callback(names.__setitem__, "_cache", names["_cache"])
        names["_cache"] = {}


@contextmanager
def unchanged(torch: ModuleType, guarded: Guarded, *, trial: bool) -> Iterator[None]:
    """A guard around a replay; raises Abstain where that changed module state, which has been put back."""
    guard = StateGuard(torch, guarded, trial=trial)
    try:
        with guard:
            yield
    except Exception as error:
        let_through(error)
        if not guard.changes or isinstance(error, UnreadCode):  # it might have put them back itself
            raise
    if guard.changes:
        raise Abstain(said_of(guard.changes))


def said_of(changes: list[str]) -> str:
    """Why a replay that makes these changes is not made."""
    what = "what it is called with" if all(map(_of_arguments, changes)) else "the modules' own state"
    return f"a forward changes {what} ({', '.join(sorted(set(changes))[:3])})"


def _of_arguments(change: str) -> bool:
    return change.startswith(_ARGUMENT)


def _is_ours(hook: object) -> bool:
    return str(getattr(hook, "__module__", "") or "").partition(".")[0] == _OWN


def _leave_out(
    undo: ExitStack, hooks: MutableMapping[object, object], is_out: Callable[[object], bool]
) -> None:
    """Take some hooks out of their dict until the guard ends."""
    out = [key for key, hook in hooks.items() if is_out(hook)]
    if out:
        undo.callback(_refill, hooks, dict(hooks))
        for key in out:
            del hooks[key]


def _refill(hooks: MutableMapping[object, object], saved: dict[object, object]) -> None:
    hooks.clear()
    hooks.update(saved)
