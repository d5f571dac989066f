"""How long training waits for other ranks: DistributedDataParallel's own clock beside the thread's.

In: a few plain steps, during which DDP times every backward instead of each hundredth. Out: the event
`collectives` (`records.CollectiveWaits`): what its collectives take beyond the backward that hides them, and
how long the thread neither ran nor waited for a CPU. Nothing is added to the steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, cast

from . import ring
from .loop import Loop
from .task import Boundary
from .traced import run_delay_ns

USUAL_RATE = 100  # torch's own: it times every hundredth backward
MOST_WAITED = 6  # times the steps asked for
ORDINARY = (0, ring.PHASES)


class _Parallel(Protocol):
    def _get_ddp_logging_data(self) -> dict[str, object]: ...
    def _set_ddp_runtime_logging_sample_rate(self, rate: int) -> None: ...


class CollectiveTask:
    """Reads both clocks at so many step boundaries."""

    name = "collective waits"
    pending = False

    def __init__(self, loop: Loop, steps: int, emit: Callable[[dict[str, object]], None]) -> None:
        self._loop = loop
        self._wanted = steps
        self._emit = emit
        self._parallel: _Parallel | None = None
        self._boundaries = 0
        self._iteration = -1
        self._last: tuple[int, int] | None = None  # CPU time of the thread, its run-queue delay
        self._step_ns: list[int] = []
        self._exposed_ns: list[int] = []
        self._blocked_ns: list[int] = []

    def at_boundary(self, boundary: Boundary) -> int | None:
        """One step further."""
        try:
            return self._go_on(boundary)
        except Exception as error:  # noqa: BLE001  torch's clock is no promise of torch's
            self._abstain(f"the clock of DistributedDataParallel: {type(error).__name__}: {error}")
            return None

    def cancel(self) -> None:
        """Put the clock back to its usual pace."""
        parallel, self._parallel = self._parallel, None
        if parallel is not None:
            parallel._set_ddp_runtime_logging_sample_rate(USUAL_RATE)

    def _go_on(self, boundary: Boundary) -> int | None:
        if self._parallel is None:
            found = [root for root in boundary.job.roots if hasattr(root, "_get_ddp_logging_data")]
            if len(found) != 1:
                self._abstain(f"{len(found) or 'none'} of the root modules is DistributedDataParallel")
                return None
            self._parallel = cast(_Parallel, found[0])
            self._parallel._set_ddp_runtime_logging_sample_rate(1)
        else:
            self._note(boundary)
        if len(self._step_ns) >= self._wanted:
            self._finish()
            return None
        self._boundaries += 1
        if self._boundaries > MOST_WAITED * self._wanted:
            self._abstain("no ordinary steps in which gradients were reduced")
            return None
        self._last = (time.thread_time_ns(), run_delay_ns(self._loop.train_tid))
        return 1

    def _note(self, boundary: Boundary) -> None:
        told = cast(_Parallel, self._parallel)._get_ddp_logging_data()
        fresh = int(cast(int, told.get("iteration", 0)))
        before, self._iteration = self._iteration, fresh
        last, delay_ns = cast("tuple[int, int]", self._last), run_delay_ns(self._loop.train_tid)
        if before < 0 or fresh == before or boundary.last_flags not in ORDINARY or delay_ns < 0:
            return
        took, hidden = (
            int(cast(int, told[f"backward_{what}_time"])) for what in ("comm", "compute_comm_overlap")
        )
        ran_ns = time.thread_time_ns() - last[0] + delay_ns - last[1]
        self._step_ns.append(boundary.last_step_ns)
        self._exposed_ns.append(min(boundary.last_step_ns, max(0, took - hidden)))
        self._blocked_ns.append(max(0, boundary.last_step_ns - ran_ns))

    def _finish(self) -> None:
        self.cancel()
        waits = {"status": "ok", "step_ns": self._step_ns, "exposed_ns": self._exposed_ns}
        self._emit({"event": "collectives", "collectives": {**waits, "blocked_ns": self._blocked_ns}})

    def _abstain(self, why: str) -> None:
        self.cancel()
        self._emit({"event": "collectives", "collectives": {"status": "abstained", "why": why}})
