"""`compile.graphed`: a model's forward and backward replayed as CUDA graphs, by `make_graphed_callables`.

A replay writes to the same memory every time. So results and gradients are copied out of it, a second
forward before the first one's backward runs eagerly, and so does whatever has other shapes, parameters or
buffers that have moved, or modules whose attributes or forward were set since. The capture is rehearsed like
compiled code, under a guard that puts random states and buffers back, and its results are held against eager
ones.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import ModuleType
from typing import Any, cast

from ...live_torch.compiled_code import compiled_graphs
from ...live_torch.dispatch_modes import unseen
from ...live_torch.live_job import Job
from ...live_torch.module_call_slot import SLOT
from ...live_torch.pytrees import leaves, map_tree
from ...live_torch.torch_types import Module, Tensor
from ..device_headroom import one_more_pool
from ..model_calls.call_layers import (
    Call,
    Rank,
    autocast_states,
    hold_gradients,
    lead_through,
    needs_cuda,
    trained_roots,
)
from ..model_calls.call_results import PLAIN
from ..model_calls.compiled_call import CallsWatch, CompiledCall
from ..model_calls.rehearsal import Rehearsal, Wording
from ..registry import Refused, Undo, WatchedUndo, remedy

Capture = Callable[..., Call]  # torch.cuda.make_graphed_callables: (module, sample arguments) -> call


@remedy(
    "compile.graphed",
    treats=("overhead",),
    reach="live",
    cls="rounding",
    doc="Record forward and backward as CUDA graphs and replay them: nothing is launched from Python.",
    targets=("module.code",),
    needs=("cuda",),
    unproven=True,
    warm_up_steps=8,
    price_s=3.0,
    takes=one_more_pool,
)
def graphed(job: Job, options: Mapping[str, object]) -> Undo:
    needs_cuda(job)
    return graph_calls(job, beside_threads(job.torch, cast(Capture, job.torch.cuda.make_graphed_callables)))


def beside_threads(torch: ModuleType, capture: Capture) -> Capture:
    """A capture that other threads of the job, as a loader's that pins memory, do not end.

    It watches the calls of its own thread alone; torch's default forbids unsafe ones in all of them.
    """

    def captured(*args: object, **kwargs: object) -> Call:
        context = torch.cuda.graph
        torch.cuda.graph = partial(context, capture_error_mode="thread_local")
        try:
            return capture(*args, **kwargs)
        finally:
            torch.cuda.graph = context

    return captured


def graph_calls(job: Job, capture: Capture) -> Undo:
    """Lead the calls of the one model through a graph.

    Raises:
        Refused: several models, a wrapped one, hooks, or a forward that can't run twice.
    """
    torch, roots = job.torch, trained_roots(job)
    if len(roots) != 1 or any(cast(Module, each) is not roots[0] for each in job.roots):
        raise Refused("it records one model, and a wrapped one from the start of a run only")
    (root,) = roots
    if compiled_graphs():
        raise Refused("the job compiles something already")
    if any(each.requires_grad for each in root.buffers()):
        raise Refused("a buffer is trained")
    replays = Replays(torch, root, capture)
    rehearsal = LoneRehearsal(torch, root, replays)
    call = CompiledCall(rehearsal, replays, dynamic=False)
    with ExitStack() as undo:
        undo.callback(hold_gradients(root))
        undo.callback(lead_through(root, Rank.CODE, _layer(call, replays)))
        applied = undo.pop_all()
    watch = CallsWatch([call])
    return WatchedUndo(applied.close, watch.trouble, times=watch.times)


class LoneRehearsal(Rehearsal):
    """A rehearsal that leaves no forward of its own waiting for a backward."""

    def __init__(self, torch: ModuleType, module: Module, replays: Replays) -> None:
        wording = Wording("it can't be recorded: ", "recorded, ")
        super().__init__(torch, module, own_stream=False, wording=wording, forget=replays.forget)
        self._replays = replays

    def why_not(
        self, eager: Call, compiled: Call, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> str | None:
        """A reason not to replay calls like this one; None where all is well."""
        # Recorded first: the calls that warm up draw random numbers, which a replay does not.
        why = self.forward_fails(self._replays.record, args, kwargs)
        if why is not None:
            return f"{self.wording.fails}{why}"
        return super().why_not(eager, compiled, args, kwargs)


class Token:
    """Lives as long as the autograd graph of one replayed forward."""


class Replays:
    """The recorded calls of one module, by the shapes that they were recorded for."""

    def __init__(self, torch: ModuleType, module: Module, capture: Capture) -> None:
        self._torch, self._capture = torch, capture
        self._module = weakref.ref(module)
        self._recorded: dict[object, tuple[Call, list[object]]] = {}
        self._leave = _leave(torch, self)
        self._autocast = autocast_states(torch)
        self.pending: weakref.ref[Token] | None = None  # a forward whose backward is still to come

    def forget(self) -> None:
        """No backward of a replay so far is to come."""
        self.pending = None

    def free(self, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
        """Whether a replay now overwrites nothing that is still needed, and reads the right memory."""
        if self.pending is not None and self.pending() is not None:
            return False
        recorded = self._recorded.get(self._kind(args)) if not kwargs else None
        return recorded is None or recorded[1] == self._found()

    def record(self, *args: object, **kwargs: object) -> None:
        """Record calls with arguments like these.

        Raises:
            TypeError: the arguments are not tensors alone.
        """
        torch = self._torch
        if kwargs or not all(isinstance(each, torch.Tensor) for each in args):
            raise TypeError("a recorded model takes tensors alone, by position")
        given = tuple(
            each.detach().clone().requires_grad_(each.requires_grad) for each in cast("tuple[Tensor]", args)
        )
        around = _around(torch, cast(Module, self._module()))
        with _without_cached_weights(torch):
            recorded = self._capture(around, given, allow_unused_input=True)
        self._recorded[self._kind(args)] = recorded, self._found()

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Replay; what was not recorded yet is recorded.

        Raises:
            TypeError: the arguments are not tensors alone.
        """
        torch = self._torch
        if kwargs or self._kind(args) not in self._recorded:
            self.record(*args, **kwargs)
        results = self._recorded[self._kind(args)][0](*args)
        token = Token()
        self.pending = weakref.ref(token)
        found = [each for each in leaves(results) if isinstance(each, torch.Tensor)]
        copies = iter(cast("tuple[object, ...]", self._leave(token, *found)))
        return map_tree(results, lambda leaf: next(copies) if isinstance(leaf, torch.Tensor) else leaf)

    def _kind(self, args: tuple[object, ...]) -> object:
        tensor = self._torch.Tensor
        kinds = (
            (each.shape, each.dtype, each.requires_grad) if isinstance(each, tensor) else type(each)
            for each in args
        )
        return self._autocast(), *kinds

    def _found(self) -> list[object]:
        """What a graph goes on with as it was recorded: where tensors lie, which are trained, what modules
        are and hold."""
        module = cast(Module, self._module())
        tensors = *module.parameters(), *module.buffers()
        found: list[object] = [(each.data_ptr(), each.requires_grad) for each in tensors]
        for part in module.modules():
            kind: Any = type(part)
            found += kind, kind.forward
            for name, each in vars(part).items():
                if name != SLOT:
                    found.append((name, each if isinstance(each, PLAIN) else id(each)))
        return found


def _layer(call: CompiledCall, replays: Replays) -> Callable[[Call], Call]:
    def layer(below: Call) -> Call:
        ours = call.layer(below)

        def led(*args: object, **kwargs: object) -> object:
            with unseen():
                tensors = not kwargs and all(hasattr(each, "requires_grad") for each in args)
                taken = tensors and not replays.free(args, kwargs)
            if taken:
                return below(*args, **kwargs)
            return ours(*args, **kwargs)

        return led

    return layer


@contextmanager
def _without_cached_weights(torch: ModuleType) -> Iterator[None]:
    """Autocast, where it is on, casts the weights anew: a graph must not read copies that are let go of."""
    cached = torch.is_autocast_cache_enabled()
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(cached)


def _around(torch: ModuleType, module: Module) -> object:
    """A module of ours around the job's: what is recorded is changed, and the job's must not be."""

    class Around(torch.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, *args: object) -> object:
            return self.inner._call_impl(*args)

    return Around()


def _leave(torch: ModuleType, replays: Replays) -> Call:
    """Results copied out of the graph's memory; its backward says that the forward's memory is free."""
    keeps = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)

    class Leave(torch.autograd.Function):  # type: ignore[name-defined,misc]
        @staticmethod
        def forward(ctx, token, *results):  # type: ignore[no-untyped-def]
            ctx.token = token
            ctx.set_materialize_grads(False)
            copies = tuple(each.clone() for each in results)
            ctx.mark_non_differentiable(*(each for each in copies if not each.is_floating_point()))
            return copies

        @staticmethod
        def backward(ctx, *gradients):  # type: ignore[no-untyped-def]
            # The backward of the graph runs next, before any forward can; kept, it may run once more.
            mine = replays.pending is not None and replays.pending() is ctx.token
            if mine and not keeps():
                replays.pending = None
            return None, *gradients

    return Leave.apply  # type: ignore[no-any-return]
