"""The running job, as the tuner needs it: remedies that switch at step boundaries, and step records.

The sidecar implements `JobUnderTest` on a live job, tests on a simulated one. All calls are made from
the one thread that tunes; each may block for as long as its docstring says.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from autobrrr.agent.remedies.registry import RefusalCode
from autobrrr.agent.wire import ring_layout
from autobrrr.records import JobFacts
from autobrrr.records.tuning_records import MemoryPeaks

STEP = np.dtype(
    [(name, np.int64) for name in ring_layout.SAMPLED_FIELDS]
    + [
        ("start_ns", np.int64),
        ("end_ns", np.int64),
        ("own_ns", np.int64),
        ("device_ns", np.int64),
        ("arm", np.uint32),
        ("flags", np.uint32),
        ("seq", np.uint64),
    ]
)
"""One record of the ring; `STEP.itemsize == ring_layout.RECORD_BYTES`."""

Steps = NDArray[np.void]
StepClock = Literal["host", "device"]
"""By what steps are timed: on a device that works asynchronously the host's ends say when work was queued."""


def timed(steps: Steps, clock: StepClock) -> Steps:
    """Those of the steps whose duration is known by this clock."""
    known: Steps = steps if clock == "host" else steps[steps["device_ns"] > 0]
    return known


def durations_ns(steps: Steps) -> NDArray[np.float64]:
    """Nanoseconds of each step, shape [steps]: by the device's clock where that stamped its ends."""
    by_device, by_host = steps["device_ns"], steps["end_ns"] - steps["start_ns"]
    return np.where(by_device > 0, by_device, by_host).astype(np.float64)


class NotApplied(Exception):
    """The job refused a remedy; the message says why. Nothing was changed."""

    def __init__(self, why: str, code: RefusalCode = RefusalCode.UNFIT) -> None:
        super().__init__(why)
        self.code = code


class LongEpochs(NotApplied):
    """The remedy takes effect with an epoch, and too few epochs fit into the budget."""


class RemedyLost(Exception):
    """A remedy was taken off by the job's side, or could not be switched. The message says why."""


class Compilation(Protocol):
    """A process beside the job compiles what a remedy will need."""

    @property
    def why(self) -> str | None:
        """Why nothing was compiled; None where it was, or goes on."""

    def done(self) -> bool:
        """Whether it has ended."""

    def stop(self, why: str) -> None:
        """End it now; returns once it has."""


class JobUnderTest(Protocol):
    """A job under test. Anything may raise `errors.TargetGone` once the job or its link is gone."""

    @property
    def facts(self) -> JobFacts:
        """What the agent saw of the job."""

    @property
    def clock(self) -> StepClock:
        """By what its steps are to be timed."""

    @property
    def cores(self) -> int | None:
        """CPUs that the process may run on, shared out among the ranks; None where it is not known."""

    def apply(self, remedy: str, options: Mapping[str, object]) -> tuple[int, int]:
        """Switch a remedy on at a boundary; returns its token, and the first step with it.

        Raises:
            NotApplied: the remedy refuses this job.
            RemedyLost: no boundary came in time; the command was taken back.
        """

    def prepare(self, remedy: str, options: Mapping[str, object]) -> Compilation:
        """Begin to compile what a remedy compiles, beside the job.

        Raises:
            NotApplied, RemedyLost: as `apply` does.
        """

    def undo(self, token: int) -> int:
        """Switch a remedy off; returns the first step without it. Also for a remedy that is lost.

        Raises:
            RemedyLost: it could not be undone.
        """

    def lost(self) -> Mapping[int, str]:
        """Remedies of this session that the job's side took off by itself: token -> why."""

    def take_peaks(self, remedies: Collection[str]) -> MemoryPeaks:
        """The most memory with one of these on, of all that were switched off since this was asked last."""

    def next_seq(self) -> int:
        """The number of the step that runs now."""

    def steps(self, first_seq: int, count: int, timeout_ns: int) -> Steps:
        """Finished steps from `first_seq` on, in order, all that are there; dtype fields as `STEP`.

        Waits until there are `count` of them; returns earlier, with fewer, when the timeout has
        passed or the tuning was cancelled. Steps that the ring has lost are left out.
        """

    def now_ns(self) -> int:
        """A monotonic clock; the tuner counts its budget by it."""

    @property
    def paused(self) -> bool:
        """Whether the user holds the tuner."""

    def crowd(self, last_ns: int) -> str | None:
        """Who took the CPUs from the job over the last so many ns; None: nobody, or not measured."""

    def taken_ns(self) -> float:
        """Training time that our own processes have taken so far, by using CPUs that the job needed."""

    def rest_while_paused(self) -> None:
        """Return once the tuner may go on, is cancelled, or the session ends; the clock stands still."""

    def cancelled(self) -> bool:
        """True once the user wants to stop."""
