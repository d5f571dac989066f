"""What of the job's own would see what we run between two steps, and how long our work waits for its end.

In: torch's state on the training thread, at a boundary at which work of ours is due. Out: the reason to wait.
A profile, a count of FLOPs or a log of the job's holds nothing of ours that way.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from ..live_torch.dispatch_modes import foreign_mode
from ..live_torch.graph_capture import capturing

LONG_BOUNDARIES, LONG_NS = 12, 2_000_000_000  # both,
MOST_NS = 5_000_000_000  # but no longer: whoever asked gives up after some steps, or some seconds more


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
        self.boundaries = 0  # at which it has waited so far
        self._since_ns = 0

    def waits(self, why: str | None) -> bool:
        """Whether work that is due at this boundary waits on, and not for too long yet."""
        if not self.boundaries:
            self._since_ns = self._clock()
        self.boundaries = 0 if why is None else self.boundaries + 1
        waited_ns = self._clock() - self._since_ns
        return why is not None and waited_ns < (MOST_NS if self.boundaries <= LONG_BOUNDARIES else LONG_NS)
