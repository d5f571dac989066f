"""The one measuring task that may run at a time, slice by slice between steps of training.

In: a task, the boundaries of the loop. Out: slices run when they are due, their time booked; an error of a
task ends it and is reported, and training goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import thread_time_ns
from typing import Protocol

from ..live_torch.job_signals import raised_by_handler
from ..live_torch.live_job import Job
from ..live_torch.torch_types import Abstain
from ..wire import ring_layout


@dataclass(slots=True)
class Boundary:
    """One step boundary, on the training thread.

    A task sets `mark` to flag the step that begins now (`ring.TRACED`, ...), `sample` to have the
    phases of that step measured, `begun` to be called once it has begun, on the device's clock too.
    """

    job: Job
    seq: int  # of the step that begins now
    now_ns: int  # time.perf_counter_ns at entry
    last_step_ns: int  # the step that just ended, without the agent's own boundary work
    last_flags: int
    mark: int = 0
    sample: bool = False
    begun: Callable[[], None] | None = None


class Task(Protocol):
    """Work spread over step boundaries."""

    name: str
    event: str  # that ends it: its result, or why there is none
    resumable: bool  # after a `cancel` within a step it goes on with the next one

    @property
    def pending(self) -> bool:
        """After a cancel: something is left that only the training thread can take off."""

    def at_boundary(self, boundary: Boundary) -> bool:
        """One slice of work; whether it goes on at the next boundary."""

    def cancel(self) -> None:
        """Take everything off. On the training thread at a boundary, or on the agent's thread
        when training does not come to one. May be called twice, never raises."""


NEVER = 1 << 62
INSTRUMENTED = ring_layout.TRACED | ring_layout.SETTLING
PAUSE_NS = 300_000_000  # budget of one pause or instrumented step; a usual step where that is longer
OVERRUN = 10  # times its budget, after which it is cut off
MOST_CUT = 3  # steps of one task that are cut off before the task ends


class Measuring:
    """Holds the task: begun from the agent's thread, run on the training thread."""

    def __init__(
        self,
        emit: Callable[[dict[str, object]], None],
        clock: Callable[[], int],
        cpu_clock: Callable[[], int] = thread_time_ns,
    ) -> None:
        self.task: Task | None = None
        self.spent_ns = 0  # that training stood still for, all tasks so far
        self.stretched_ns = 0  # what steps of training took longer for them
        self.posted_ns = 0  # what is no task: remedies switched, holds between steps, graphs recorded
        self.cpu_ns = 0  # the training thread's own in both
        self.usual_ns = 0  # a step before the task began
        self.unfinished: Task | None = None  # cancelled, but the training thread has a part in it
        self._until_ns = NEVER  # when the instrumented step that is running is cut off
        self._cut = 0  # steps of this task that were
        self._just_cut = False
        self._emit, self._clock, self._cpu_clock = emit, clock, cpu_clock

    def begin(self, task: Task) -> None:
        """Run a task from the next boundary on."""
        self._until_ns, self._cut, self._just_cut = NEVER, 0, False
        self.task = task

    def cut_off(self) -> None:
        """End the measurement if its step lasts too long. Runs on the training thread, in mid-step."""
        task = self.task
        if task is not None and self._clock() >= self._until_ns:
            self._until_ns, self._just_cut = NEVER, True
            task.cancel()

    def slice(self, boundary: Boundary) -> bool:
        """Run a slice of the task, if one is on; True where the task is over with it."""
        task, goes_on = self.task, False
        if task is None:
            return False
        began, cpu = self._clock(), self._cpu_clock()
        self._until_ns = NEVER
        try:
            self._look_back(task, boundary)
            goes_on = task.at_boundary(boundary)
        except Exception as error:  # the task ends, training goes on
            task.cancel()
            self._emit(given_up(task, error))
            self.unfinished = task if task.pending else None
            if raised_by_handler(error):
                raise
        ended = self._clock()
        self.spent_ns += ended - began
        self.cpu_ns += self._cpu_clock() - cpu
        if goes_on:
            self._until_ns = ended + self._limit_ns if boundary.mark & INSTRUMENTED else NEVER
            return False
        self.task = None
        return True

    @property
    def _limit_ns(self) -> int:
        return OVERRUN * max(PAUSE_NS, self.usual_ns)

    def _look_back(self, task: Task, boundary: Boundary) -> None:
        """The step that has ended may have been cut off: it shows nothing, and some tasks end with it."""
        if not self._just_cut:
            return
        self._just_cut = False
        self._cut += 1
        boundary.last_flags |= ring_layout.SETTLING
        if not task.resumable or self._cut > MOST_CUT:
            raise Abstain(f"a step under it took longer than {self._limit_ns / 1e9:.0f} s and was cut off")

    def stretched(self, step_ns: int) -> None:
        """A step has ended that was recorded, traced or run after a replay."""
        if self.task is not None and self.usual_ns:
            self.stretched_ns += max(0, step_ns - self.usual_ns)

    def posted(self, work: Callable[[], None]) -> None:
        """Do what is no task, but is not done at every boundary either."""
        began, cpu = self._clock(), self._cpu_clock()
        try:
            work()
        finally:
            self.posted_ns += self._clock() - began
            self.cpu_ns += self._cpu_clock() - cpu

    @property
    def taken_ns(self) -> int:
        """What all tasks and all posted work so far have taken of training."""
        return self.spent_ns + self.stretched_ns + self.posted_ns

    def stop(self) -> None:
        """Cancel; `unfinished` keeps what only the training thread can take off."""
        task, self.task = self.task or self.unfinished, None
        if task is not None:
            task.cancel()
        self.unfinished = task if task is not None and task.pending else None


def given_up(task: Task, error: Exception) -> dict[str, object]:
    """The event that ends a task without a result."""
    if isinstance(error, Abstain):
        return abstained(task.event, str(error), **error.known)
    return abstained(task.event, f"it failed: {type(error).__name__}: {error}")


def abstained(event: str, why: str, **known: object) -> dict[str, object]:
    """The event that there is no result; `known`: fields of the result that are known all the same."""
    return {"event": event, event: {"status": "abstained", "why": why, **known}}
