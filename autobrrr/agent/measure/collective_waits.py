"""How long training on a CPU waits for other ranks, by clocks of two kinds.

In: a few plain steps, during which DistributedDataParallel times every backward instead of each hundredth,
and collectives that the loop calls by itself are timed. Out: the event `collectives`
(`records.CollectiveWaits`): what collectives take beyond the backward that hides them, how long the thread
neither ran nor waited for a CPU, and the rest of each step by phase, to be set beside that of other ranks.
On a device the host's clocks say nothing of them, and DDP's own would wait for it: a window shows those.
"""

from __future__ import annotations

import functools
import sys
import time
from _thread import get_ident
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, Protocol, cast

from ..live_torch.collective_count import collective_count
from ..live_torch.job_signals import Ours
from ..live_torch.module_call_slot import Call
from ..live_torch.parameter_device import parameter_device
from ..live_torch.patches import Patch, patched, take_off_all
from ..live_torch.torch_types import Abstain
from ..loop.task_runner import Boundary
from ..loop.train_loop import Emit, TrainLoop
from ..phases.phase_clock import NAMES, PhaseClock
from ..wire import ring_layout
from ..wire.kernel_texts import run_delay_ns

# How the methods of process groups begin that communicate: old names and new ones.
CALLS = (
    *("_allgather", "_reduce_scatter", "all", "barrier", "broadcast", "gather", "monitored_barrier"),
    *("recv", "reduce", "scatter", "send"),
)
BUFFERS = "_broadcast_coalesced"
USUAL_RATE = 100  # torch's own: it times every hundredth backward
MOST_WAITED = 6  # times the steps asked for
SAMPLED = ("garbage_ns", "samples", "tokens")  # fields of a sampled step that are told


class _Parallel(Protocol):
    def _get_ddp_logging_data(self) -> dict[str, object]: ...
    def _set_ddp_runtime_logging_sample_rate(self, rate: int) -> None: ...


class Called(NamedTuple):
    """The collectives of one step."""

    calls: int
    by_phase_ns: Counter[str]


class CollectiveCalls:
    """Counts and times collectives that are called on one thread, by patches of torch's classes.

    Whatever is called (`dist.all_reduce`, a name imported from there, an asynchronous call and its `wait`)
    ends in the classes of process groups and of pending work. Those of DistributedDataParallel do not: they
    are made and awaited in C++, but for its buffers.
    """

    def __init__(self, phases: PhaseClock, owner: int, fail: Callable[[BaseException], None]) -> None:
        self._phases, self._owner, self._ours = phases, owner, Ours(Exception, told=fail)
        self._patches: list[Patch] = []
        self._inside = False
        self._calls = 0
        self._by_phase_ns: Counter[str] = Counter()

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
        found = Called(self._calls, self._by_phase_ns)
        self._calls, self._by_phase_ns = 0, Counter()
        return found

    def _timed(self, original: Call, *, name: str, calls: int) -> Call:
        watch = self

        def timed(self: object, *args: object, **kwargs: object) -> object:
            return watch._around(calls, original, self, *args, **kwargs)

        # The bindings ask whether a subclass overrides a method, and know the override that calls back by
        # the name of its code and its first argument: under another name it would call itself for ever.
        timed.__code__ = timed.__code__.replace(co_name=name)
        return functools.wraps(original)(timed)

    def _timed_function(self, original: Call) -> Call:
        return functools.wraps(original)(lambda *args, **kwargs: self._around(0, original, *args, **kwargs))

    def _around(self, calls: int, original: Call, /, *args: object, **kwargs: object) -> object:
        if self._inside or get_ident() != self._owner:
            return original(*args, **kwargs)
        self._inside, began = True, time.perf_counter_ns()
        try:
            return original(*args, **kwargs)
        finally:
            self._inside = False
            with self._ours:
                self._by_phase_ns[NAMES[self._phases.shown]] += time.perf_counter_ns() - began
                self._calls += calls


class _Step(NamedTuple):
    """One step; how long it waited for DDP's gradients shows in the next one."""

    told: dict[str, int]  # columns of the event
    phases_ns: dict[str, int]  # once it counts, without collectives
    called: Called


class CollectiveTask:
    """Reads all clocks at so many step boundaries."""

    name, event = "collective waits", "collectives"
    pending = resumable = False

    def __init__(self, loop: TrainLoop, steps: int, emit: Emit) -> None:
        self._loop = loop
        self._wanted = steps
        self._emit = emit
        self._parallel: _Parallel | None = None
        self._calls: CollectiveCalls | None = None
        self._boundaries = 0
        self._iteration = -1
        self._last: tuple[int, int] | None = None  # CPU time of the thread, its run-queue delay
        self._steps: list[_Step] = []
        self._last_step: _Step | None = None  # whose gradients DDP will tell of in the next one

    def at_boundary(self, boundary: Boundary) -> bool:
        """One step further."""
        if self._calls is None:
            self._begin(boundary)
        else:
            self._note(boundary, self._calls.take())
        if len(self._steps) >= self._wanted:
            self._finish()
            return False
        self._boundaries += 1
        if self._boundaries > MOST_WAITED * self._wanted:
            reduced = " in which gradients were reduced" if self._parallel is not None else ""
            raise Abstain(f"no ordinary steps{reduced}")
        boundary.sample = True  # a call is booked on the phase that it is made in
        self._last = (time.thread_time_ns(), run_delay_ns(self._loop.train_tid))
        return True

    def cancel(self) -> None:
        """Put DDP's clock back to its usual pace, take the patches off."""
        calls, self._calls = self._calls, None
        if calls is not None:
            self._loop.left += calls.take_off()
        parallel, self._parallel = self._parallel, None
        if parallel is not None:
            parallel._set_ddp_runtime_logging_sample_rate(USUAL_RATE)

    def _begin(self, boundary: Boundary) -> None:
        found = [root for root in boundary.job.roots if hasattr(root, "_get_ddp_logging_data")]
        if len(found) > 1:
            raise Abstain(f"{len(found)} of the root modules are DistributedDataParallel")
        loop, device = self._loop, parameter_device(boundary.job)
        if device is not None and device.type != "cpu":
            raise Abstain(f"the parameters are on {device.type}: a profiler window shows its collectives")
        if found:
            self._parallel = cast(_Parallel, found[0])
            self._parallel._set_ddp_runtime_logging_sample_rate(1)
        self._calls = CollectiveCalls(loop.phases, loop.hot.owner, loop.fail)
        self._calls.put_on()

    def _note(self, boundary: Boundary, called: Called) -> None:
        gradients = self._gradients()
        last, delay_ns = cast("tuple[int, int]", self._last), run_delay_ns(self._loop.train_tid)
        before, self._last_step = self._last_step, None
        if self._parallel is not None:
            if gradients is None:
                return
            if before is not None:
                self._add(before, *gradients)
        if boundary.last_flags != ring_layout.PHASES or delay_ns < 0:
            return
        delayed_ns = delay_ns - last[1]
        ran_ns = time.thread_time_ns() - last[0] + delayed_ns
        told = {
            "step_ns": boundary.last_step_ns,
            "blocked_ns": max(0, boundary.last_step_ns - ran_ns),
            "called_ns": called.by_phase_ns.total(),
            "end_ns": boundary.now_ns,
            "delay_ns": delayed_ns,
            "counts": -1 if (begun := collective_count(self._loop.torch)) is None else begun,
        }
        told |= {name: self._loop.last_sample[ring_layout.SAMPLED_FIELDS.index(name)] for name in SAMPLED}
        step = _Step(told, self._loop.last_phases or {}, called)
        if self._parallel is not None:
            self._last_step = step
        else:
            self._add(step, 0, 0)

    def _add(self, step: _Step, gradients_ns: int, reduced: int) -> None:
        """Count a step in: DDP's collectives took so long beyond one backward, and came after so many."""
        exposed_ns = min(step.told["step_ns"], gradients_ns + step.told["called_ns"])
        waited_ns = step.called.by_phase_ns + Counter(backward=gradients_ns)
        own_ns = {name: max(0, ns - waited_ns[name]) for name, ns in step.phases_ns.items()}
        told = step.told | {"exposed_ns": exposed_ns, "reduced": reduced}
        self._steps.append(_Step(told, own_ns, step.called))

    def _gradients(self) -> tuple[int, int] | None:
        """What DDP's collectives took beyond a backward of the step before the last one, and how many it had.

        It reads its clock when its next forward begins: of several backwards in a step it tells of one.
        None where this step had no forward, and reduced nothing.
        """
        if self._parallel is None:
            return None
        told = self._parallel._get_ddp_logging_data()
        fresh = int(cast(int, told.get("iteration", 0)))
        before, self._iteration = self._iteration, fresh
        if before < 0 or fresh == before:
            return None
        took, hidden = (
            int(cast(int, told[f"backward_{what}_time"])) for what in ("comm", "compute_comm_overlap")
        )
        return max(0, took - hidden), fresh - before

    def _finish(self) -> None:
        steps = self._steps
        by_phase_ns = sum((each.called.by_phase_ns for each in steps), Counter[str]())
        calls = sum(each.called.calls for each in steps)
        if self._parallel is None and not calls and not by_phase_ns:
            raise Abstain(
                f"none of the root modules is DistributedDataParallel, and in {len(steps)} steps "
                "the training thread called no collective"
            )
        self.cancel()
        columns = {name: [each.told[name] for each in steps] for name in steps[0].told}
        names = [name for name in NAMES if all(name in each.phases_ns for each in steps)]
        waits: dict[str, object] = {
            **columns,
            "status": "ok",
            "calls": calls / len(steps),
            "called_by_phase_ns": {name: ns / len(steps) for name, ns in by_phase_ns.items()},
            "own_by_phase_ns": {name: [each.phases_ns[name] for each in steps] for name in names},
            "counts": columns["counts"] if min(columns["counts"]) >= 0 else [],
        }
        self._emit({"event": "collectives", "collectives": waits})
