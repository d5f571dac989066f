"""Torch's own CPU profiler, on for one step at a time, and what it saw: names, times, phases.

Unlike a dispatch mode it changes neither which kernels run nor how, and is fit for hooks, autocast,
checkpoints, DDP and modes of the job's. It gives way before the job switches on a profiler, or forks.
"""

from __future__ import annotations

import functools
import os
import sys
from _thread import get_ident
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from time import perf_counter_ns
from types import ModuleType
from typing import Any

from ..live_torch.job_signals import ANY
from ..live_torch.patches import Patch, around, patched, take_off_all
from ..live_torch.torch_types import Abstain
from ..wire.recording import COLLATING

LOADING = "enumerate(DataLoader)"  # torch's name for a range in which a batch is loaded
HELD_NS = 300_000  # so long no operator begins or ends: Python has something else to do
PAUSE_NS = 1_000_000  # longer than Python between the operators of a loss takes
NOT_OPERATORS = ("autograd::", "torch::", "profiler::")
_ENABLING = (
    ("profiler", "_prepare_profiler"),
    ("profiler", "_enable_profiler"),
    ("profiler_legacy", "_enable_profiler_legacy"),
)


class StepWatch:
    """Something of torch's that sees what a thread runs: put on at a step's begin, taken off at its end."""

    def __init__(self) -> None:
        self._end: Callable[[], Any] | None = None
        self._owner = 0
        self._witnesses: list[Patch] = []
        self.for_kernels = False  # it ended because the job switches on a profiler of kernels

    @property
    def on(self) -> bool:
        """It is on, and only its own thread can take it off."""
        return self._end is not None

    def begin(self, start: Callable[[], Callable[[], Any]]) -> None:
        """Put it on; `start` returns what ends it.

        Raises:
            Abstain: this torch has no such thing, or not like that.
        """
        self._owner, self.for_kernels = get_ident(), False
        self._witnesses = [
            patch
            for module, name in _ENABLING
            for patch in patched(sys.modules.get(f"torch.autograd.{module}"), name, around(self._make_room))
        ]
        self._witnesses += patched(os, "fork", around(self._give_way))
        try:
            self._end = start()
        except (AttributeError, RuntimeError, TypeError) as error:
            take_off_all(self._witnesses)
            raise Abstain(f"torch's profiler can't be switched on here: {error}") from error

    def end(self) -> Any:
        """What it saw; None where it had to give way, or another thread asks."""
        if self._end is None or get_ident() != self._owner:
            return None
        take_off_all(self._witnesses)
        end, self._end = self._end, None
        return end()

    def _give_way(self, *_: object, **__: object) -> None:
        """A child would be watched for ever, and two profilers can't be on."""
        with ANY:
            self.end()

    def _make_room(self, *given: Any, **_: object) -> None:
        with ANY:
            if self.on and get_ident() == self._owner:  # else `start` switches on ours
                activities = given[1] if len(given) > 1 else ()
                self.for_kernels = any(each.name == "CUDA" for each in activities)
        self._give_way()


def profiled(
    torch: ModuleType, iterator: object | None = None
) -> Callable[[], tuple[Sequence[Any], int] | None]:
    """Switch the profiler on; what switches it off and gives the step's events, and when they began.

    Args:
        iterator: The DataLoader's. Where it loads item by item in this process, what is no item is a range.
    """
    autograd, inside = torch.autograd, torch._C._autograd
    fetcher = getattr(iterator, "_dataset_fetcher", None)
    fetcher = fetcher if _by_items(torch, fetcher) else None
    plain = torch._C._profiler._ExperimentalConfig()
    config = autograd.ProfilerConfig(autograd.ProfilerState.CPU, False, False, False, False, False, plain)
    inside._enable_profiler_legacy(config)
    began_ns = perf_counter_ns()
    ranges = patched(fetcher, "collate_fn", autograd.profiler.record_function(COLLATING))

    def end() -> tuple[Sequence[Any], int] | None:
        take_off_all(ranges)
        if not autograd._profiler_enabled():
            return None
        threads = inside._disable_profiler_legacy()
        mine = [events for events in threads if events and events[0].name() == "__start_profile"]
        if mine and torch.cuda.is_initialized():  # a thread of autograd's own runs backwards: this one waits
            return sorted(chain(*threads), key=mine[0][0].cpu_elapsed_us), began_ns
        return (mine or [[]])[0], began_ns

    return end


def _by_items(torch: ModuleType, fetcher: Any) -> bool:
    """Whether a DataLoader's fetcher asks for one item after the other, and makes them a batch."""
    if fetcher is None or not fetcher.auto_collation:
        return False
    data = fetcher.dataset
    while type(data) is torch.utils.data.Subset:
        data = data.dataset
    return not hasattr(data, "__getitems__")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledStep:
    """Everything that began in a step, in order; times by `perf_counter_ns`, 0 long what did not end."""

    names: list[str] = field(default_factory=list)
    began_ns: array[int] = field(default_factory=lambda: array("q"))
    spent_ns: array[int] = field(default_factory=lambda: array("q"))
    within: array[int] = field(default_factory=lambda: array("q"))  # how many others began within it
    where: bytearray = field(default_factory=bytearray)  # its phase
    operators: list[int] = field(default_factory=list)  # places of the operators, as autograd sees them
    held_ns: int = 0  # Python at length between them
    between_ns: int = 0  # of `pauses`, where no operator runs


def read_step(
    torch: ModuleType,
    events: Sequence[Any],
    began_ns: int,
    *,
    step_ns: int = 0,
    moves: Sequence[tuple[int, int]] = (),
    pauses: Sequence[tuple[int, int]] = (),
) -> ProfiledStep:
    """Events of the profiler as a step.

    Args:
        moves: When each phase began, and which.
        pauses: Times in which pauses between operators are looked for.
    """
    names, began, spent, within = list[str](), array("q"), array("q"), array("q")
    operators, open_, where = list[int](), list[int](), bytearray()
    coming, phase = deque(moves), 0
    inside = 0  # place of the operator that runs, plus one
    held_ns, last, ops = 0, None, (LOADING, "aten::")
    start, first_ns = events[0] if events else None, 0
    for event in events:
        kind = event.kind()
        if kind == "mark" or (not names and kind != "push"):
            continue  # the profiler's own, or what began before the step: our own work lies between
        now = began_ns + int(1000 * start.cpu_elapsed_us(event))  # type: ignore[union-attr]
        if last is None:
            first_ns = now
        elif now - last >= HELD_NS and not any(names[at].startswith(ops) for at in open_):
            held_ns += now - last
        last = now
        if kind == "push":
            name, at = event.name(), len(names)
            # A composite one stands for those that it calls; for nothing where it has nothing to do.
            is_range = "::" not in name or name.startswith(NOT_OPERATORS)
            if not inside and not is_range and not is_composite(torch, name):
                operators.append(at)
                inside = at + 1
            open_.append(at)
            names.append(name)
            began.append(now)
            spent.append(0)
            within.append(0)
            while coming and coming[0][0] <= now:
                phase = coming.popleft()[1]
            where.append(phase)
        elif kind == "pop" and open_:
            at = open_.pop()
            spent[at], within[at] = now - began[at], len(names) - at - 1
            if inside == at + 1:
                inside = 0
    if last is not None and step_ns:  # the step's time begins behind our work
        before_ns = step_ns - (last - first_ns)
        held_ns += before_ns if before_ns >= HELD_NS else 0
    ran = [(began[at], began[at] + spent[at]) for at in operators]
    return ProfiledStep(
        names=names,
        began_ns=began,
        spent_ns=spent,
        within=within,
        where=where,
        operators=operators,
        held_ns=held_ns,
        between_ns=sum(_idle_ns(ran, *pause) for pause in pauses),
    )


def _idle_ns(ran: Sequence[tuple[int, int]], since: int, until: int) -> int:
    """Pauses of some length between operators, within a time; none where no operator came before."""
    idle, last = 0, since
    if not ran or ran[0][0] >= since:
        return 0
    for began, ended in ran:
        if ended > since and began < until:
            idle += began - last if began - last >= PAUSE_NS else 0
            last = max(last, ended)
    return idle + (until - last if until - last >= PAUSE_NS else 0)


@functools.lru_cache(maxsize=4096)
def is_composite(torch: ModuleType, name: str) -> bool:
    """Whether autograd sees the operators that this one calls in place of itself, whatever its overload."""
    try:
        known = torch._C._jit_get_operation(name)[1]
        overloads = [one for one in known if not one.endswith("out") and not one.startswith("prim_")]
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        full = [f"{name}.{one}" if one else name for one in overloads]
        return bool(full) and all(has(one, "CompositeImplicitAutograd") for one in full)
    except (AttributeError, RuntimeError, TypeError):
        return False  # an operator of the job's own
