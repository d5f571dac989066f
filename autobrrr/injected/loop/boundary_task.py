"""What may run on the training thread between two steps: a task, and what it is handed.

The loop calls a task's `at_boundary` inside the anchor optimizer's post hook, times it, books it
as the agent's own work, and takes the task off if it raises. `Abstain` is how a task gives up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ..live_torch.live_job import Job


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

    def at_boundary(self, boundary: Boundary) -> int | None:
        """One slice of work; returns after how many steps to call again (>= 1), None when done."""

    def cancel(self) -> None:
        """Take everything off. On the training thread at a boundary, or on the agent's thread
        when training does not come to one. May be called twice, never raises."""
