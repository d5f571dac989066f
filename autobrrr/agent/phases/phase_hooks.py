"""The hooks that feed the phase clock: wrappers for the session, the rest for a burst of steps.

In: the job (roots, optimizers), whether code is compiled. Out: calls of `PhaseClock`. Wrappers of
class attributes stay on and pass through between bursts, for 0.1 us each: every change of a class
makes Python forget what it has learnt about it, and Python 3.13 does so for good after a thousand.
Watches of root modules and the optimizer's hook go on and off with each burst. A hook that fails
reports itself and never raises.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from time import perf_counter_ns

from ..live_torch.job_signals import Ours
from ..live_torch.live_job import Job
from ..live_torch.module_call_slot import Call, Watch, unwatch, watch
from ..live_torch.patches import Patch, patched, prepared, take_off_all
from . import batch_shapes
from .loader_watch import LoaderWatch, make_next
from .phase_clock import OPTIMIZER, PhaseClock

Fail = Callable[[BaseException], None]


class PhaseHooks:
    """All phase hooks of one job, put on many times.

    Args:
        door: Called where the training thread is in our hands for a moment, in the middle of a step.
    """

    def __init__(
        self,
        job: Job,
        phases: PhaseClock,
        loader: LoaderWatch,
        fail: Fail,
        door: Callable[[], None] = lambda: None,
    ) -> None:
        self._torch = job.torch
        self._job = job
        self._phases = phases
        self._loader = loader
        self._ours = Ours(Exception, told=fail)
        self._wrapped_for: tuple[object, ...] = ()
        self._patches: list[Patch] = []
        self._gradients: list[Patch] = []  # of a module, not of a class: changing it costs nothing
        self._watches: list[Watch] = []
        self._placed: list[dict[object, object]] = []
        self._key = object()
        self._update: Call = lambda *_: None
        self.on = False
        self.roots_on = False  # forward is measured
        self.updates_on = False  # the optimizer is
        self._door = door
        self.before_backward: Callable[[], None] | None = None  # called there, in a sampled step

    def put_on(self, owner: int, *, compiled: bool) -> list[str]:
        """Arm everything that this job allows, at a boundary; names of older wrappers that had to stay."""
        optimizers, roots = ([], []) if compiled else (self._job.optimizers, self._job.roots)
        self._phases.owner = owner
        left = self._wrap(optimizers)
        self.watch_roots(roots)
        for patch in self._gradients:
            patch.put_on()
        if not compiled:
            self._put_on_update()
        self.on = self._phases.on = True
        return left

    def take_off(self, *, at_boundary: bool) -> list[str]:
        """The burst is over; what had to stay. At a boundary on the training thread, or from outside."""
        self.on = self._phases.on = False
        self.roots_on = self.updates_on = False
        left = [] if at_boundary else self._leave_update_hook()
        for hooks in self._placed:
            hooks.pop(self._key, None)
        self._placed.clear()
        for placed in self._watches:
            unwatch(placed)
        self._watches.clear()
        return left + take_off_all([*self._gradients])

    def take_off_wrappers(self) -> list[str]:
        """Wrappers too, until the next burst; names of those that somebody has patched over."""
        self._wrapped_for = ()
        return take_off_all(self._patches)

    def watch_roots(self, roots: list[object]) -> None:
        """Watch the calls of these root modules."""
        for root in roots:
            around = make_root(root, self._phases, self._torch.is_grad_enabled, self._ours, self._door)
            self._watches.append(watch(root, *around))
        self.roots_on = bool(self._watches)

    def _backward_door(self) -> None:
        self._door()
        if self.before_backward is not None:
            self.before_backward()

    def _wrap(self, optimizers: list[object]) -> list[str]:
        iterator = loader_iterator_class()
        classes = zero_grad_classes(optimizers)
        wrapped_for = (iterator, *classes)
        if wrapped_for == self._wrapped_for:
            return []
        left = self.take_off_wrappers()
        self._wrapped_for = wrapped_for
        phases, ours = self._phases, self._ours
        self._update = make_update(phases, ours)
        autograd = getattr(self._torch, "autograd", None)
        self._gradients = prepared(
            autograd, "backward", lambda f: make_backward(f, phases, ours, self._backward_door)
        )
        self._patches += patched(iterator, "__next__", lambda f: make_next(f, phases, self._loader, ours))
        for cls in classes:
            self._patches += patched(cls, "zero_grad", lambda f: make_zero_grad(f, phases, ours))
        return left

    def _put_on_update(self) -> None:
        # torch iterates this dict live. With a single key, an iteration over it has no next item to
        # lose: going in when it is empty and out when it holds only ours is safe at any moment.
        # With hooks of the user's the optimizer lies in what follows backward, and is not measured.
        hooks = optimizer_pre_hooks()
        if hooks is not None and not hooks:
            hooks[self._key] = self._update
            self._placed.append(hooks)
            self.updates_on = True

    def _leave_update_hook(self) -> list[str]:
        # The user has added a hook of their own after ours: the training thread may be between the
        # two in its iteration, where taking ours out would raise in their step. It does nothing.
        for hooks in self._placed:
            if hooks is optimizer_pre_hooks() and len(hooks) > 1:
                self._placed.remove(hooks)
                return ["global optimizer pre hook"]
        return []


def make_backward(original: Call, phases: PhaseClock, ours: Ours, door: Callable[[], None]) -> Call:
    """`torch.autograd.backward`, timed; the loss is looked at when the step ends."""
    timed = _timed(original, phases, ours, phases.backward_enter, phases.backward_exit)

    @functools.wraps(original)
    def backward(*args: object, **kwargs: object) -> object:
        if phases.hears:
            phases.loss = args[0] if args else None
            with ours:
                door()
        return timed(*args, **kwargs)

    return backward


def make_zero_grad(original: Call, phases: PhaseClock, ours: Ours) -> Call:
    """`Optimizer.zero_grad`, timed."""
    marks = (functools.partial(mark, OPTIMIZER) for mark in (phases.aside_enter, phases.aside_exit))
    return _timed(original, phases, ours, *marks)


def _timed(
    original: Call,
    phases: PhaseClock,
    ours: Ours,
    enter: Callable[[int], object],
    leave: Callable[[int], object],
) -> Call:
    @functools.wraps(original)
    def timed(*args: object, **kwargs: object) -> object:
        if not phases.hears:
            return original(*args, **kwargs)
        with ours:
            enter(perf_counter_ns())
        try:
            return original(*args, **kwargs)
        finally:
            with ours:
                leave(perf_counter_ns())

    return timed


def make_update(phases: PhaseClock, ours: Ours) -> Call:
    """The global optimizer pre hook."""

    def update(*_: object) -> None:
        if phases.hears:
            with ours:
                phases.update_enter(perf_counter_ns())

    return update


def make_root(
    root: object, phases: PhaseClock, grad_enabled: Callable[[], bool], ours: Ours, door: Callable[[], None]
) -> tuple[Call, Call]:
    """What is called before and after each call of one root module."""
    key = id(root)

    def enter(_module: object, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        if not phases.hears:
            return
        with ours:
            door()
            grad = grad_enabled()
            # A call without gradients may act on one observation: the batch is what the step learns from.
            if not phases.loading and (phases.samples < 0 or (grad and phases.guessed)):
                phases.samples, phases.guessed = batch_shapes.batch_size(args, kwargs), not grad
            if phases.wants_tokens(key, grad=grad):
                phases.texts.extend(batch_shapes.texts_of((args, kwargs)) if phases.tokens < 0 else ())
                phases.tokens_called(key, batch_shapes.token_count(args, kwargs))
            phases.root_enter(key, perf_counter_ns(), grad=grad)

    def leave(*_: object) -> None:
        if phases.hears:
            with ours:
                phases.root_exit(perf_counter_ns(), grad=grad_enabled())

    return enter, leave


def optimizer_pre_hooks() -> dict[object, object] | None:
    """torch's dict of global optimizer pre hooks, if this torch has one."""
    return getattr(sys.modules.get("torch.optim.optimizer"), "_global_optimizer_pre_hooks", None)


def loader_iterator_class() -> object | None:
    """torch's base class of DataLoader iterators, if the job has loaded it."""
    return getattr(sys.modules.get("torch.utils.data.dataloader"), "_BaseDataLoaderIter", None)


def zero_grad_classes(optimizers: list[object]) -> list[object]:
    """The classes whose own `zero_grad` these optimizers call."""
    found: list[object] = []
    for optimizer in optimizers:
        for cls in type(optimizer).__mro__:
            if "zero_grad" in vars(cls):
                if cls not in found:
                    found.append(cls)
                break
    return found
