"""Marks for loops in which no torch optimizer steps: backward, a CUDA graph, root forward, the loader.

In: a loop whose optimizer hook stays silent. Out: `event(source)` at the end of each outermost backward,
before each replay of a graph that holds a whole step, after each root forward or before each batch. All are
on while it is not known which one the loop has; then only the one that marks the steps stays.
"""

from __future__ import annotations

import functools
from _thread import get_ident
from collections import Counter
from collections.abc import Callable
from types import ModuleType

from ..live_torch.live_job import Job
from ..live_torch.module_call_slot import Watch, unwatch, watch
from ..live_torch.patches import Build, Patch, first, patched, take_off_all
from ..phases.phase_hooks import loader_iterator_class
from .root_modules import RootModules

SOURCES = ("backward", "replay", "forward", "loader")
ALL = ", ".join(SOURCES)
ENOUGH = 8  # events without an optimizer step
MOST_OTHERS = 64  # replays of other graphs until one of them marks the steps
AnyCall = Callable[..., object]
Event = Callable[[str, int], None]


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
        self._watch("backward", autograd, "backward", lambda f: outermost(f, lambda: self._mark("backward")))

    def put_on_rest(self, *, compiled: bool) -> None:
        """Watch the others too; modules only where nothing is compiled. Called until one marks the steps."""
        cuda = getattr(self._torch, "cuda", None)
        self._watch("replay", getattr(cuda, "CUDAGraph", None), "replay", first(self._before_replay))
        self._watch("loader", loader_iterator_class(), "__next__", first(self._before_batch))
        self._roots.step_ended()
        self._compiles |= compiled or self._roots.compiles
        if self._compiles:
            self._leave_modules()
        elif not self._job.roots:
            self._roots.put_on(compiled=False)
        elif not self._watches:
            self._watch("forward", self._torch, "compile", first(self._before_compile))
            self._watches += [watch(root, None, self._left_root) for root in self._job.roots]

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

    def _before_replay(self, graph: object, *_: object, **__: object) -> None:
        """Of several graphs in a step, the first that was seen begins it."""
        self._others = 0 if id(graph) == self._graph else self._others + 1
        if not self._graph or self._others > MOST_OTHERS:
            self._graph, self._others = id(graph), 0
        if id(graph) == self._graph:
            self._mark("replay")

    def _before_batch(self, *_: object) -> None:
        self._mark("loader")

    def _before_compile(self, *_: object, **__: object) -> None:
        self._compiles = True
        self._leave_modules()

    def _left_root(self, *_: object) -> None:
        self._mark("forward")


def outermost(original: AnyCall, ended: Callable[[], None]) -> AnyCall:
    """`torch.autograd.backward` that tells when it has ended, not of one within another."""
    inside = [0]

    @functools.wraps(original)
    def backward(*args: object, **kwargs: object) -> object:
        inside[0] += 1
        try:
            return original(*args, **kwargs)
        finally:
            inside[0] -= 1
            if not inside[0]:
                ended()

    return backward
