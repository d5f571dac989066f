"""How long training waits for other ranks, by clocks of two kinds.

In: a few plain steps, during which DistributedDataParallel times every backward instead of each hundredth,
and collectives that the loop calls by itself are timed. Out: the event `collectives`
(`records.CollectiveWaits`): what collectives take beyond the backward that hides them, and how long the
thread neither ran nor waited for a CPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, cast

from ..loop.boundary_task import Boundary
from ..loop.train_loop import TrainLoop
from ..phases.phase_clock import NAMES
from ..wire import ring_layout
from .collective_calls import Called, CollectiveCalls
from .traced_steps import other_device, run_delay_ns

USUAL_RATE = 100  # torch's own: it times every hundredth backward
MOST_WAITED = 6  # times the steps asked for
ORDINARY = (0, ring_layout.PHASES)


class _Parallel(Protocol):
    def _get_ddp_logging_data(self) -> dict[str, object]: ...
    def _set_ddp_runtime_logging_sample_rate(self, rate: int) -> None: ...


class CollectivesAbstained(Exception):
    """Why nothing is timed here."""


class CollectiveTask:
    """Reads all clocks at so many step boundaries."""

    name = "collective waits"
    pending = False

    def __init__(self, loop: TrainLoop, steps: int, emit: Callable[[dict[str, object]], None]) -> None:
        self._loop = loop
        self._wanted = steps
        self._emit = emit
        self._parallel: _Parallel | None = None
        self._calls: CollectiveCalls | None = None
        self._boundaries = 0
        self._iteration = -1
        self._last: tuple[int, int] | None = None  # CPU time of the thread, its run-queue delay
        self._step_ns: list[int] = []
        self._exposed_ns: list[int] = []
        self._blocked_ns: list[int] = []
        self._called: list[Called] = []

    def at_boundary(self, boundary: Boundary) -> int | None:
        """One step further."""
        why = "the clock of DistributedDataParallel"
        try:
            return self._go_on(boundary)
        except CollectivesAbstained as reason:
            why = str(reason)
        except Exception as error:  # noqa: BLE001  torch's clock is no promise of torch's
            why = f"{why}: {type(error).__name__}: {error}"
        self.cancel()
        self._emit({"event": "collectives", "collectives": {"status": "abstained", "why": why}})
        return None

    def cancel(self) -> None:
        """Put DDP's clock back to its usual pace, take the patches off."""
        calls, self._calls = self._calls, None
        if calls is not None:
            self._loop.left += calls.take_off()
        parallel, self._parallel = self._parallel, None
        if parallel is not None:
            parallel._set_ddp_runtime_logging_sample_rate(USUAL_RATE)

    def _go_on(self, boundary: Boundary) -> int | None:
        if self._calls is None:
            self._begin(boundary)
        else:
            self._note(boundary, self._calls.take())
        if len(self._step_ns) >= self._wanted:
            self._finish()
            return None
        self._boundaries += 1
        if self._boundaries > MOST_WAITED * self._wanted:
            reduced = " in which gradients were reduced" if self._parallel is not None else ""
            raise CollectivesAbstained(f"no ordinary steps{reduced}")
        boundary.sample = True  # a call is booked on the phase that it is made in
        self._last = (time.thread_time_ns(), run_delay_ns(self._loop.train_tid))
        return 1

    def _begin(self, boundary: Boundary) -> None:
        found = [root for root in boundary.job.roots if hasattr(root, "_get_ddp_logging_data")]
        if len(found) > 1:
            raise CollectivesAbstained(f"{len(found)} of the root modules are DistributedDataParallel")
        device = other_device(boundary.job)
        if device is not None:
            raise CollectivesAbstained(
                f"the parameters are on {device}: the host does not wait for collectives there"
            )
        if found:
            self._parallel = cast(_Parallel, found[0])
            self._parallel._set_ddp_runtime_logging_sample_rate(1)
        loop = self._loop
        self._calls = CollectiveCalls(loop.phases, loop.hot.owner, loop.fail)
        self._calls.put_on()

    def _note(self, boundary: Boundary, called: Called) -> None:
        gradients_ns = self._gradients_ns()
        last, delay_ns = cast("tuple[int, int]", self._last), run_delay_ns(self._loop.train_tid)
        if gradients_ns is None or boundary.last_flags not in ORDINARY or delay_ns < 0:
            return
        ran_ns = time.thread_time_ns() - last[0] + delay_ns - last[1]
        self._step_ns.append(boundary.last_step_ns)
        self._exposed_ns.append(min(boundary.last_step_ns, gradients_ns + called.spent_ns))
        self._blocked_ns.append(max(0, boundary.last_step_ns - ran_ns))
        self._called.append(called)

    def _gradients_ns(self) -> int | None:
        """What DDP's collectives took beyond the backward; None where it reduced nothing in this step."""
        if self._parallel is None:
            return 0
        told = self._parallel._get_ddp_logging_data()
        fresh = int(cast(int, told.get("iteration", 0)))
        before, self._iteration = self._iteration, fresh
        if before < 0 or fresh == before:
            return None
        took, hidden = (
            int(cast(int, told[f"backward_{what}_time"])) for what in ("comm", "compute_comm_overlap")
        )
        return max(0, took - hidden)

    def _finish(self) -> None:
        steps, calls = len(self._called), sum(one.calls for one in self._called)
        if self._parallel is None and not any(one.spent_ns for one in self._called):
            raise CollectivesAbstained(
                f"none of the root modules is DistributedDataParallel, and in {steps} steps "
                "the training thread called no collective"
            )
        self.cancel()
        columns = zip(*(one.by_phase_ns for one in self._called), strict=True)
        by_phase = {name: sum(column) / steps for name, column in zip(NAMES, columns, strict=True)}
        waits = {
            "status": "ok",
            "step_ns": self._step_ns,
            "exposed_ns": self._exposed_ns,
            "blocked_ns": self._blocked_ns,
            "calls": calls / steps,
            "called_ns": [one.spent_ns for one in self._called],
            "called_by_phase_ns": {name: ns for name, ns in by_phase.items() if ns},
        }
        self._emit({"event": "collectives", "collectives": waits})
