"""What of the job's own would see what we run between two steps, and how long our work waits for its end.

In: torch's state on the training thread, at a boundary at which work of ours is due. Out: the reason to wait.
A profile, a count of FLOPs or a log of the job's holds nothing of ours that way.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from ..live_torch.dispatch_modes import foreign_mode
from ..live_torch.graph_capture import capturing

MOST_NS = 3_000_000_000  # whoever asked gives up some seconds later


def job_records(torch: ModuleType) -> str | None:
    """What of the job's own would keep what runs now, on this thread, however it is called."""
    if capturing(torch):
        return "the job captures a CUDA graph"
    if torch.autograd._profiler_enabled():
        return "a profiler of the job's own is recording"
    return None


def job_watches(torch: ModuleType) -> str | None:
    """The same, or what would see operators that are not called `unwatched`."""
    return job_records(torch) or foreign_mode(torch)


class WatchPatience:
    """Work that waits while the job watches."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.since_ns: int | None = None  # None: it does not wait

    def waits(self, why: str | None) -> bool:
        """Whether work that is due at this boundary waits on, and not for too long yet."""
        if why is None:
            self.since_ns = None
            return False
        now_ns = self._clock()
        self.since_ns = now_ns if self.since_ns is None else self.since_ns
        return now_ns - self.since_ns < MOST_NS
