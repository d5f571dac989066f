"""Marks of a step beside the optimizer's hook.

Always on: `GradScaler.step`, which tells when an update was held back, and `Module.eval`. A step that calls
`eval` more often than this loop's steps do gets the flag EVALUATION. They cost nothing in a step that calls
neither; where compiled code calls `eval`, dynamo sees what stood there.

For loops in which no torch optimizer steps: `event(source)` at the end of each outermost backward, before
each replay of a CUDA graph that holds a whole step, after each root forward or before each batch. All are on
while it is not known which one the loop has; then only the one that marks the steps stays.
"""

from __future__ import annotations

import functools
import sys
from _thread import get_ident
from collections import Counter
from collections.abc import Callable
from types import ModuleType

from ..live_torch.dispatch_modes import within_backward
from ..live_torch.job_signals import Ours
from ..live_torch.live_job import Job
from ..live_torch.module_call_slot import Call, Watch, unwatch, watch
from ..live_torch.patches import Build, Patch, around, patched, take_off_all
from ..phases.phase_hooks import loader_iterator_class
from ..wire import ring_layout
from .root_modules import TRACED, RootModules
from .step_hook import Hot
from .step_pattern import Usual

SOURCES = ("backward", "replay", "forward", "loader")
ALL = ", ".join(SOURCES)
ENOUGH = 8  # events without an optimizer step
MOST_OTHERS = 64  # replays of other graphs until one of them marks the steps
Event = Callable[[str, int], None]


class Marks:
    """The two that are always on."""

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

    def _eval(self, original: Call) -> Call:
        compiling: Callable[[], bool] = getattr(getattr(self._torch, "compiler", None), "is_compiling", bool)
        saw = self._saw_eval

        def eval(self_: object) -> object:
            if not compiling():
                saw()
            return original(self_)

        eval.__code__ = eval.__code__.replace(co_filename=TRACED)  # a graph would break at one left out
        return functools.wraps(original)(eval)

    def _saw_eval(self) -> None:
        if get_ident() != self._hot.owner:
            return
        with self._ours:
            if self._evals_in != self._hot.steps:
                self._evals_in = self._hot.steps
                self._evals = 0
            self._evals += 1
            if self._usual.learnt and self._usual.is_more(self._evals):
                self._hot.flags |= ring_layout.EVALUATION
                self._hot.poke()

    def _scaler_step(self, original: Call) -> Call:
        hot = self._hot

        @functools.wraps(original)
        def step(scaler: object, optimizer: object, *args: object, **kwargs: object) -> object:
            before = hot.steps
            result = original(scaler, optimizer, *args, **kwargs)
            if hot.steps == before and get_ident() == hot.owner:
                self._skipped(optimizer)
            return result

        return step


class FallbackMarks:
    """The fallback marks of one job.

    Attributes:
        kept: The source that stays on; `ALL` until that is known, None for none.
    """

    def __init__(
        self, torch: ModuleType, job: Job, event: Event, fail: Callable[[BaseException], None]
    ) -> None:
        self.kept: str | None = ALL
        self._torch = torch
        self._job = job
        self._event = event
        self._patches: dict[str, list[Patch]] = {source: [] for source in SOURCES}
        self._watches: list[Watch] = []
        self._roots = RootModules(job, fail)
        self._roots.begin(0)
        self._compiles = False
        self._seen: Counter[str] = Counter()
        self._graph = 0  # id of the graph whose replay begins a step
        self._others = 0  # replays of others since

    def put_on_backward(self) -> None:
        """Watch backward: from the beginning, until an optimizer has fired."""
        autograd = getattr(self._torch, "autograd", None)
        self._watch("backward", autograd, "backward", around(after=self._backward_ends))

    def put_on_rest(self, *, compiled: bool) -> None:
        """Watch the others too; modules only where nothing is compiled. Called until one marks the steps."""
        cuda = getattr(self._torch, "cuda", None)
        self._watch("replay", getattr(cuda, "CUDAGraph", None), "replay", around(self._before_replay))
        self._watch("loader", loader_iterator_class(), "__next__", around(lambda *_: self._mark("loader")))
        if self._job.roots:
            self._roots.stop()
        self._compiles |= compiled or self._roots.compiles
        if self._compiles:
            self._leave_modules()
        elif not self._job.roots:
            self._roots.put_on(compiled=False)
        elif not self._watches:
            self._watch("forward", self._torch, "compile", around(self._before_compile))
            self._watches += [watch(root, None, lambda *_: self._mark("forward")) for root in self._job.roots]

    def _watch(self, source: str, owner: object, name: str, build: Build) -> None:
        if not self._patches[source]:
            self._patches[source] += patched(owner, name, build)

    def choice(self) -> str | None:
        """The source that has shown itself often enough, the best first."""
        return next((source for source in SOURCES if self._seen[source] >= ENOUGH), None)

    def forget(self) -> None:
        """An optimizer fired: what was counted says nothing."""
        self._seen.clear()

    def keep_only(self, source: str | None) -> list[str]:
        """Take off all but one; names of what had to stay."""
        self.kept = source
        left: list[str] = []
        for name, patches in self._patches.items():
            if name != source:
                left += take_off_all(patches)
        self._roots.stop()
        if source != "forward":
            self._leave_modules()
        return left

    def _leave_modules(self) -> None:
        self._roots.stop()
        for placed in self._watches:
            unwatch(placed)
        self._watches.clear()

    def _mark(self, source: str) -> None:
        self._seen[source] += 1
        self._event(source, get_ident())

    def _backward_ends(self, *_: object, **__: object) -> None:
        if not within_backward(self._torch):  # one within another is a part of it
            self._mark("backward")

    def _before_replay(self, graph: object, *_: object, **__: object) -> None:
        """Of several graphs in a step, the first that was seen begins it."""
        self._others = 0 if id(graph) == self._graph else self._others + 1
        if not self._graph or self._others > MOST_OTHERS:
            self._graph, self._others = id(graph), 0
        if id(graph) == self._graph:
            self._mark("replay")

    def _before_compile(self, *_: object, **__: object) -> None:
        self._compiles = True
        self._leave_modules()
