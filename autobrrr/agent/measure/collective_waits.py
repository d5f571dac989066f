"""How long training on a CPU waits for other ranks, by clocks of two kinds.

In: a few plain steps, during which DistributedDataParallel times every backward instead of each hundredth,
and collectives that the loop calls by itself are timed. Out: the event `collectives`
(`records.CollectiveWaits`): what collectives take beyond the backward that hides them, how long the thread
neither ran nor waited for a CPU, and the rest of each step by phase, to be set beside that of other ranks.
On a device the host's clocks say nothing of them, and DDP's own would wait for it: a window shows those.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, cast

from ..live_torch.collective_count import collective_count
from ..live_torch.parameter_device import parameter_device
from ..live_torch.torch_types import Abstain
from ..loop.task_runner import Boundary
from ..loop.train_loop import TrainLoop
from ..phases.phase_clock import NAMES
from ..wire import ring_layout
from .collective_calls import Called, CollectiveCalls
from .traced_steps import run_delay_ns

USUAL_RATE = 100  # torch's own: it times every hundredth backward
MOST_WAITED = 6  # times the steps asked for
GARBAGE, SAMPLES, TOKENS = (
    ring_layout.SAMPLED_FIELDS.index(name) for name in ("garbage_ns", "samples", "tokens")
)


class _Parallel(Protocol):
    def _get_ddp_logging_data(self) -> dict[str, object]: ...
    def _set_ddp_runtime_logging_sample_rate(self, rate: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    end_ns: int
    step_ns: int
    gradients_ns: int  # DDP's collectives beyond one backward
    reduced: int  # backwards after which it had collectives
    blocked_ns: int
    delay_ns: int
    phases_ns: dict[str, int]
    sampled: tuple[int, ...]  # as in `ring_layout.SAMPLED_FIELDS`
    called: Called
    count: int = -1  # collectives begun in the default group by its end; -1: not known

    @property
    def exposed_ns(self) -> int:
        return min(self.step_ns, self.gradients_ns + self.called.spent_ns)

    def own_ns(self, index: int) -> int:
        """The phase `NAMES[index]` without collectives; -1: not measured."""
        name = NAMES[index]
        waited_ns = self.called.by_phase_ns[index] + (self.gradients_ns if name == "backward" else 0)
        return max(0, self.phases_ns[name] - waited_ns) if name in self.phases_ns else -1


class CollectiveTask:
    """Reads all clocks at so many step boundaries."""

    name, event = "collective waits", "collectives"
    pending = resumable = False

    def __init__(self, loop: TrainLoop, steps: int, emit: Callable[[dict[str, object]], None]) -> None:
        self._loop = loop
        self._wanted = steps
        self._emit = emit
        self._parallel: _Parallel | None = None
        self._calls: CollectiveCalls | None = None
        self._boundaries = 0
        self._iteration = -1
        self._seq = 0  # of the last boundary
        self._last: tuple[int, int] | None = None  # CPU time of the thread, its run-queue delay
        self._steps: list[_Step] = []
        self._count = collective_count(loop.torch)
        self._last_step: _Step | None = None  # whose gradients DDP will tell of in the next one

    def at_boundary(self, boundary: Boundary) -> int | None:
        """One step further."""
        if self._calls is None:
            self._begin(boundary)
        else:
            self._note(boundary, self._calls.take())
        self._seq = boundary.seq
        if len(self._steps) >= self._wanted:
            self._finish()
            return None
        self._boundaries += 1
        if self._boundaries > MOST_WAITED * self._wanted:
            reduced = " in which gradients were reduced" if self._parallel is not None else ""
            raise Abstain(f"no ordinary steps{reduced}")
        boundary.sample = True  # a call is booked on the phase that it is made in
        self._last = (time.thread_time_ns(), run_delay_ns(self._loop.train_tid))
        return 1

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
        if boundary.seq != self._seq + 1:  # it has waited meanwhile: what is told is of more than that step
            before = None
        if self._parallel is not None:
            if gradients is None:
                return
            if before is not None:
                self._steps.append(replace(before, gradients_ns=gradients[0], reduced=gradients[1]))
        if boundary.last_flags != ring_layout.PHASES or delay_ns < 0:
            return
        delayed_ns = delay_ns - last[1]
        ran_ns = time.thread_time_ns() - last[0] + delayed_ns
        step = _Step(
            end_ns=boundary.now_ns,
            step_ns=boundary.last_step_ns,
            gradients_ns=0,
            reduced=0,
            blocked_ns=max(0, boundary.last_step_ns - ran_ns),
            delay_ns=delayed_ns,
            phases_ns=self._loop.last_phases or {},
            sampled=self._loop.last_sample,
            called=called,
            count=-1 if (begun := self._count()) is None else begun,
        )
        if self._parallel is not None:
            self._last_step = step
        else:
            self._steps.append(step)

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
        steps, called = self._steps, [one.called for one in self._steps]
        if self._parallel is None and not any(one.calls or one.spent_ns for one in called):
            raise Abstain(
                f"none of the root modules is DistributedDataParallel, and in {len(steps)} steps "
                "the training thread called no collective"
            )
        self.cancel()
        columns = zip(*(one.by_phase_ns for one in called), strict=True)
        by_phase = {name: sum(column) / len(steps) for name, column in zip(NAMES, columns, strict=True)}
        own = {name: [one.own_ns(index) for one in steps] for index, name in enumerate(NAMES)}
        counts = [one.count for one in steps]
        waits = {
            "status": "ok",
            "step_ns": [one.step_ns for one in steps],
            "exposed_ns": [one.exposed_ns for one in steps],
            "blocked_ns": [one.blocked_ns for one in steps],
            "calls": sum(one.calls for one in called) / len(steps),
            "called_ns": [one.spent_ns for one in called],
            "called_by_phase_ns": {name: ns for name, ns in by_phase.items() if ns},
            "end_ns": [one.end_ns for one in steps],
            "own_by_phase_ns": {name: column for name, column in own.items() if min(column) >= 0},
            "delay_ns": [one.delay_ns for one in steps],
            "garbage_ns": [one.sampled[GARBAGE] for one in steps],
            "samples": [one.sampled[SAMPLES] for one in steps],
            "tokens": [one.sampled[TOKENS] for one in steps],
            "reduced": [one.reduced for one in steps],
            "counts": counts if min(counts) >= 0 else [],
        }
        self._emit({"event": "collectives", "collectives": waits})
