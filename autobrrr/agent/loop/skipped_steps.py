"""What the optimizer hook alone does not show: skipped updates and evaluations.

In: `GradScaler.step` and `Module.eval`, class attributes replaced for the time of the session;
they cost nothing in a step that calls neither. Out: `skipped` when a scaler held an update back,
the flag EVALUATION on a step that calls `eval` more often than this loop's steps do. Where compiled code
calls `eval`, dynamo sees what stood there.
"""

from __future__ import annotations

import functools
import sys
from _thread import get_ident
from collections.abc import Callable
from types import ModuleType

from ..live_torch.job_signals import Ours
from ..live_torch.patches import Patch, patched
from ..wire import ring_layout
from .root_modules import TRACED
from .step_hook import Hot
from .step_pattern import Usual

AnyCall = Callable[..., object]


class Marks:
    """Both marks of one job."""

    def __init__(
        self,
        torch: ModuleType,
        hot: Hot,
        skipped: Callable[[object], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._torch = torch
        self._hot = hot
        self._skipped = skipped
        self._ours = Ours(Exception, told=fail)
        self._usual = Usual()
        self._evals = 0
        self._evals_in = -1

    def put_on(self) -> list[Patch]:
        """The patches; those that this torch has."""
        nn = getattr(self._torch, "nn", None)
        scaler = None
        for name in ("torch.amp.grad_scaler", "torch.cuda.amp.grad_scaler"):
            scaler = scaler or getattr(sys.modules.get(name), "GradScaler", None)
        return [
            *patched(getattr(nn, "Module", None), "eval", self._eval),
            *patched(scaler, "step", self._scaler_step),
        ]

    def step_closed(self, seq: int, flags: int) -> None:
        """A settling step has ended: learn how often its like calls `eval`."""
        if not self._usual.learnt and flags & ring_layout.SETTLING:
            self._usual.is_more(self._evals if self._evals_in == seq else 0)

    def _eval(self, original: AnyCall) -> AnyCall:
        compiling: Callable[[], bool] = getattr(getattr(self._torch, "compiler", None), "is_compiling", bool)
        saw = self._saw_eval

        def eval(self_: object) -> object:
            if not compiling():
                saw()
            return original(self_)

        eval.__code__ = eval.__code__.replace(co_filename=TRACED)  # a graph would break at one left out
        return functools.wraps(original)(eval)

    def _saw_eval(self) -> None:
        if get_ident() == self._hot.owner:
            with self._ours:
                self._count_eval()

    def _count_eval(self) -> None:
        if self._evals_in != self._hot.steps:
            self._evals_in = self._hot.steps
            self._evals = 0
        self._evals += 1
        if self._usual.learnt and self._usual.is_more(self._evals):
            self._hot.flags |= ring_layout.EVALUATION
            self._hot.poke()

    def _scaler_step(self, original: AnyCall) -> AnyCall:
        hot = self._hot

        @functools.wraps(original)
        def step(scaler: object, optimizer: object, *args: object, **kwargs: object) -> object:
            before = hot.steps
            result = original(scaler, optimizer, *args, **kwargs)
            if hot.steps == before and get_ident() == hot.owner:
                self._skipped(optimizer)
            return result

        return step
