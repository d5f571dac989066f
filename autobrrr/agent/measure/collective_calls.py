"""How long collectives that the loop calls by itself keep the training thread.

In: torch's classes of process groups and of pending work, patched for a few steps. Out: calls, and time in
them or waiting for their results, by phase. Whatever is called (`dist.all_reduce`, a name imported from
there, an asynchronous call and its `wait`) ends in these classes. Those of DistributedDataParallel do
not: they are made and awaited in C++, but for its buffers.
"""

from __future__ import annotations

import functools
import sys
from _thread import get_ident
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns

from ..live_torch.job_signals import Ours
from ..live_torch.patches import Patch, patched, take_off_all
from ..phases.phase_clock import NAMES, PhaseClock

AnyCall = Callable[..., object]
# How the methods of process groups begin that communicate: old names and new ones.
CALLS = (
    *("_allgather", "_reduce_scatter", "all", "barrier", "broadcast", "gather", "monitored_barrier"),
    *("recv", "reduce", "scatter", "send"),
)
BUFFERS = "_broadcast_coalesced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """The collectives of one step."""

    calls: int
    spent_ns: int
    by_phase_ns: tuple[int, ...]  # as in `phases.NAMES`


class CollectiveCalls:
    """Counts and times them on one thread while it is on."""

    def __init__(self, phases: PhaseClock, owner: int, fail: Callable[[BaseException], None]) -> None:
        self._phases, self._owner, self._ours = phases, owner, Ours(Exception, told=fail)
        self._patches: list[Patch] = []
        self._inside = False
        self._calls = 0
        self._by_phase = [0] * len(NAMES)

    def put_on(self) -> None:
        """From now on."""
        bindings = sys.modules.get("torch._C._distributed_c10d")
        group, work = getattr(bindings, "ProcessGroup", None), getattr(bindings, "Work", None)
        for name in [each for each in getattr(group, "__dict__", ()) if each.startswith(CALLS)]:
            self._patches += patched(group, name, functools.partial(self._timed, name=name, calls=1))
        self._patches += patched(work, "wait", functools.partial(self._timed, name="wait", calls=0))
        # With it DistributedDataParallel has rank 0's buffers before each forward, and waits for them.
        self._patches += patched(sys.modules.get("torch.distributed"), BUFFERS, self._timed_function)

    def take_off(self) -> list[str]:
        """All of it; names of what somebody has patched over. From any thread."""
        return take_off_all(self._patches)

    def take(self) -> Called:
        """What there was since the last time."""
        found = Called(calls=self._calls, spent_ns=sum(self._by_phase), by_phase_ns=tuple(self._by_phase))
        self._calls = 0
        self._by_phase = [0] * len(NAMES)
        return found

    def _timed(self, original: AnyCall, *, name: str, calls: int) -> AnyCall:
        watch = self

        def timed(self: object, *args: object, **kwargs: object) -> object:
            return watch._around(calls, original, self, *args, **kwargs)

        # The bindings ask whether a subclass overrides a method, and know the override that calls back by
        # the name of its code and its first argument: under another name it would call itself for ever.
        timed.__code__ = timed.__code__.replace(co_name=name)
        return functools.wraps(original)(timed)

    def _timed_function(self, original: AnyCall) -> AnyCall:
        watch = self

        @functools.wraps(original)
        def timed(*args: object, **kwargs: object) -> object:
            return watch._around(0, original, *args, **kwargs)

        return timed

    def _around(self, calls: int, original: AnyCall, /, *args: object, **kwargs: object) -> object:
        if self._inside or get_ident() != self._owner:
            return original(*args, **kwargs)
        self._inside, began = True, perf_counter_ns()
        try:
            return original(*args, **kwargs)
        finally:
            self._inside = False
            with self._ours:
                self._by_phase[self._phases.shown] += perf_counter_ns() - began
                self._calls += calls
