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
from ..live_torch.patches import Patch, first, patched, take_off_all
from ..phases.phase_hooks import loader_iterator_class
from .root_modules import RootSearch

SOURCES = ("backward", "replay", "forward", "loader")
ENOUGH = 8  # events without an optimizer step
MOST_OTHERS = 64  # replays of other graphs until one of them marks the steps
AnyCall = Callable[..., object]
Event = Callable[[str, int], None]


class FallbackMarks:
    """The fallback marks of one job."""

    def __init__(
        self, torch: ModuleType, job: Job, event: Event, fail: Callable[[BaseException], None]
    ) -> None:
        self._torch = torch
        self._job = job
        self._event = event
        self._fail = fail
        self._patches: dict[str, list[Patch]] = {source: [] for source in SOURCES}
        self._watches: list[Watch] = []
        self._search: RootSearch | None = None
        self._compiles = False  # `torch.compile` was called while modules were watched
        self._seen: Counter[str] = Counter()
        self._graph = 0  # id of the graph whose replay begins a step
        self._others = 0  # replays of others since

    @property
    def on(self) -> bool:
        """Something of this is in place."""
        return bool(self._watches or self._search) or any(self._patches.values())

    def put_on_backward(self) -> None:
        """Watch backward: from the beginning, until an optimizer has fired."""
        if not self._patches["backward"]:
            self._patches["backward"] += patched(
                getattr(self._torch, "autograd", None), "backward", self._backward
            )

    def put_on_replay(self) -> None:
        """Watch replays of CUDA graphs: one may hold the whole step, the update too."""
        if not self._patches["replay"]:
            cuda = getattr(self._torch, "cuda", None)
            self._patches["replay"] += patched(
                getattr(cuda, "CUDAGraph", None), "replay", first(self._before_replay)
            )

    def put_on_rest(self) -> None:
        """Watch the loader and look for root modules; not where code is compiled."""
        if not self._patches["loader"]:
            self._patches["loader"] += patched(loader_iterator_class(), "__next__", first(self._before_batch))
        self._compiles |= self._search is not None and self._search.compiles
        if self._compiles:
            self.leave_modules()
        elif self._search is None and not self._watches:
            self._search = RootSearch(self._job, 0, self._fail)
            self._search.put_on()
        elif self._search is not None and self._job.roots:
            self._end_search()
            self._patches["forward"] += patched(self._torch, "compile", first(self._before_compile))
            self._watches += [watch(root, None, self._left_root) for root in self._job.roots]

    def leave_modules(self) -> None:
        """Code is compiled: nothing of ours on modules."""
        self._end_search()
        for placed in self._watches:
            unwatch(placed)
        self._watches.clear()

    def choice(self) -> str | None:
        """The source that has shown itself often enough, the best first."""
        return next((source for source in SOURCES if self._seen[source] >= ENOUGH), None)

    def forget(self) -> None:
        """An optimizer fired: what was counted says nothing."""
        self._seen.clear()

    def keep_only(self, source: str | None) -> list[str]:
        """Take off all but one; names of what had to stay."""
        left: list[str] = []
        for name, patches in self._patches.items():
            if name != source:
                left += take_off_all(patches)
        if source != "forward":
            self.leave_modules()
        self._end_search()
        return left

    def _end_search(self) -> None:
        search, self._search = self._search, None
        if search is not None:
            search.take_off()

    def _mark(self, source: str) -> None:
        self._seen[source] += 1
        self._event(source, get_ident())

    def _backward(self, original: AnyCall) -> AnyCall:
        return outermost(original, lambda: self._mark("backward"))

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
        self.leave_modules()

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
