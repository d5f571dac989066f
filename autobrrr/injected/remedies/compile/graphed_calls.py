"""`compile.graphed`: a model's forward and backward replayed as CUDA graphs, by `make_graphed_callables`.

A replay writes to the same memory every time. So results and gradients are copied out of it, and a second
forward before the first one's backward runs eagerly. So does whatever has other shapes, weights that have
moved, or modules whose attributes were set since.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from time import perf_counter_ns
from types import ModuleType
from typing import cast

from ...live_torch.graph_capture import capturing
from ...live_torch.live_job import Job
from ...live_torch.module_call_slot import SLOT
from ...live_torch.torch_types import Module, Tensor
from ..device_headroom import one_more_pool
from ..model_calls.call_layers import (
    Call,
    Rank,
    autocast_states,
    hold_gradients,
    hook_dicts,
    lead_through,
    needs_cuda,
    said_of_error,
    trained_roots,
)
from ..registry import Refused, Undo, WatchedUndo, remedy

PLAIN = (bool, int, float, complex, str, bytes, type(None))
OFTEN, MOST_GRAPHS = 3, 4  # calls of another kind before it is recorded; each graph takes memory
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
        Refused: several models, a wrapped one, hooks, or a buffer that is trained.
    """
    roots = trained_roots(job)
    if len(roots) != 1 or any(cast(Module, each) is not roots[0] for each in job.roots):
        raise Refused("it records one model, and a wrapped one from the start of a run only")
    (root,) = roots
    if any(each.requires_grad for each in root.buffers()):
        raise Refused("a buffer is trained")
    if any(map(len, hook_dicts(root))):
        raise Refused("the model has hooks, which a graph would leave out")
    replays = Replays(job, root, capture)
    with ExitStack() as undo:
        undo.callback(hold_gradients(root))
        undo.callback(lead_through(root, Rank.CODE, replays.layer))
        applied = undo.pop_all()
    return WatchedUndo(applied.close, lambda: replays.broken)


class Token:
    """Lives as long as the autograd graph of one replayed forward."""


class Replays:
    """The recorded calls of one module, by the shapes that they were recorded for.

    Attributes:
        broken: Why the module's calls can't be recorded; None while they can.
        pending: A forward whose backward is still to come: another replay would overwrite its memory.
    """

    def __init__(self, job: Job, module: Module, capture: Capture) -> None:
        torch, self._held_up = job.torch, job.held_up
        self.broken: str | None = None
        self.pending: weakref.ref[Token] | None = None
        self._torch, self._capture = torch, capture
        self._module = weakref.ref(module)
        self._hooks = hook_dicts(module)
        self._recorded: dict[object, tuple[Call, object]] = {}
        self._met: Counter[object] = Counter()
        self._leave = _leave(torch, self)
        self._autocast = autocast_states(torch)

    def layer(self, eager: Call) -> Call:
        """Replays calls in training that were recorded, or have come often enough to be."""
        torch, grad_enabled = self._torch, self._torch.is_grad_enabled

        def call(*args: object, **kwargs: object) -> object:
            module = cast(Module, self._module())
            if kwargs or self.broken is not None or not module.training or not grad_enabled():
                return eager(*args, **kwargs)
            if not all(isinstance(each, torch.Tensor) for each in args) or any(map(len, self._hooks)):
                return eager(*args)
            if self.pending is not None and self.pending() is not None:
                return eager(*args)
            found = self._replay(cast("tuple[Tensor, ...]", args), _reads(module))
            return eager(*args) if found is None else found

        return call

    def _replay(self, args: tuple[Tensor, ...], reads: object) -> object:
        """The results; None where the call has to run eagerly."""
        kind = (self._autocast(), *((each.shape, each.dtype, each.requires_grad) for each in args))
        if kind not in self._recorded:
            self._met[kind] += 1
            rare = bool(self._recorded) and self._met[kind] < OFTEN
            if rare or len(self._recorded) >= MOST_GRAPHS or not self._record(kind, args):
                return None
        recorded, read = self._recorded[kind]
        if read != reads:
            return None
        results = recorded(*args)
        token = Token()
        self.pending = weakref.ref(token)
        trees, tensor = self._torch.utils._pytree, self._torch.Tensor
        tensors = [each for each in trees.tree_flatten(results)[0] if isinstance(each, tensor)]
        copies = iter(cast("tuple[object, ...]", self._leave(token, *tensors)))
        return trees.tree_map_only(tensor, lambda _: next(copies), results)

    def _record(self, kind: object, args: tuple[Tensor, ...]) -> bool:
        """Record calls like this one, on copies of its arguments.

        torch warms up with a few calls of its own, so running statistics and random states are put back.
        """
        torch, module, began_ns = self._torch, cast(Module, self._module()), perf_counter_ns()
        given = tuple(each.detach().clone().requires_grad_(each.requires_grad) for each in args)
        random = capture_of_torch(torch)
        buffers = [(each, each.clone()) for each in module.buffers()]
        try:
            with _without_cached_weights(torch):
                recorded = self._capture(_around(torch, module), given, allow_unused_input=True)
        except Exception as error:  # noqa: BLE001 - torch raises many kinds; the eager call goes on
            self.broken = f"torch can't record it: {said_of_error(error)}"
            return False
        finally:
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)
            for restore in random:
                restore()
            self._held_up(perf_counter_ns() - began_ns)
        self._recorded[kind] = recorded, _reads(module)
        return True


def _reads(module: Module) -> list[object]:
    """What a graph goes on with as it was recorded: where tensors lie, and what Python read of the modules.

    A script that anneals a number on its model, or freezes a part, gets eager calls from then on.
    """
    tensors = *module.parameters(), *module.buffers()
    found: list[object] = [(each.data_ptr(), each.requires_grad) for each in tensors]
    for part in module.modules():
        for name, each in vars(part).items():
            if name != SLOT:
                found.append((name, each if isinstance(each, PLAIN) else id(each)))
    return found


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


Restore = Callable[[], object]


def capture_of_torch(torch: ModuleType) -> list[Restore]:
    """Functions that put torch's random states back as they are now. About a microsecond each."""
    restores = [_of(torch.default_generator)]
    # In a job's capture of a graph the states of a GPU can't be read.
    if torch.cuda.is_initialized() and not capturing(torch):
        restores += [_of(generator) for generator in torch.cuda.default_generators]
    return restores


def _of(generator: object) -> Restore:
    state = generator.get_state()  # type: ignore[attr-defined]
    return lambda: generator.set_state(state)  # type: ignore[attr-defined]
