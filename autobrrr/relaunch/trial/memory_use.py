"""How much memory a trial takes, how much there is, and what a trial will take, by what finished ones took.

In: its processes, limits of this machine, batch sizes. Out: bytes, None where they can't be read; what fits.
Memory is what would not be there without the trial: anonymous and shared pages, at their peak. A line,
bytes = a + b * batch, is fitted by least squares; a fifth is added to be safe where a batch is larger than
any that trained. The batch is what one pass holds: steps that are accumulated do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autobrrr.agent.live_torch.available_memory import figure, host_limits
from autobrrr.quantities import size
from autobrrr.relaunch.search.search_space import Point, Space

CONTEXT_BYTES = 600 << 20  # of a GPU, that the driver holds for a process beside the allocator
MARGIN = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Bytes:
    """Of the machine's memory, and of the GPU's."""

    memory: int | None = None
    gpu: int | None = None

    @property
    def telling(self) -> int | None:
        """Of the GPU where there is one, else of the machine."""
        return self.memory if self.gpu is None else self.gpu


def taken(pids: Iterable[int], reserved: int | None = None, proc: Path = Path("/proc")) -> Bytes:
    """What these processes have taken at most. Those that are gone count nothing.

    Args:
        reserved: By the allocator of torch, of a GPU; None without one.
    """
    memory: int | None = None
    for pid in pids:
        peak, now = (figure(proc / f"{pid}/status", name) for name in ("VmHWM", "VmRSS"))
        own, shared = (figure(proc / f"{pid}/smaps_rollup", name) for name in ("Pss_Anon", "Pss_Shmem"))
        if peak is not None and now is not None and own is not None:
            memory = (memory or 0) + 1024 * (own + (shared or 0) + max(0, peak - now))
    return Bytes(memory=memory, gpu=None if reserved is None else reserved + CONTEXT_BYTES)


def available_bytes(root: Path = Path("/")) -> int | None:
    """Memory that could be taken now, also by the limits of the groups that we are in; None: unreadable."""
    machine = figure(root / "proc/meminfo", "MemAvailable")
    groups = [limit.left() for limit in host_limits(root) if limit.of_group]
    known = [each for each in (None if machine is None else 1024 * machine, *groups) if each is not None]
    return min(known, default=None)


class MemoryModel:
    """Learns from trials that trained, and keeps the search from those that the machine can't hold.

    What a GPU can't hold ends by itself, out of memory, and hurts nobody: it is predicted, and tried.

    Args:
        free: Memory of the machine that could be taken now.
    """

    def __init__(self, space: Space, free: Callable[[], int | None]) -> None:
        self._space = space
        self._read = free
        self._free: int | None = None
        self._memory: list[tuple[int, int]] = []  # batch, bytes
        self._gpu: list[tuple[int, int]] = []

    def learn(self, point: Point, taken: Bytes) -> None:
        """A trial of this point has trained."""
        batch = self._space.batch_of(point)
        for seen, count in ((self._memory, taken.memory), (self._gpu, taken.gpu)):
            if batch is not None and count is not None:
                seen.append((batch, count))

    def look(self) -> None:
        """See what is free now."""
        self._free = self._read()

    def predicted(self, point: Point) -> int | None:
        """What a trial will take, of the GPU where it is on one; None: not two batch sizes are known."""
        batch = self._space.batch_of(point)
        return None if batch is None else by_line(self._gpu or self._memory, batch)

    def problem(self, point: Point) -> str | None:
        """Why a point is better not started; None where it fits, or nothing speaks against it.

        While only one batch size is known, a larger one may take up to as many times more. A smaller one,
        once it was tried, shows how much it is.
        """
        batch, seen, free = self._space.batch_of(point), self._memory, self._free
        if batch is None or free is None or not seen:
            return None
        needed = by_line(seen, batch)
        if needed is None:
            needed = round(max(count for _, count in seen) * max(1.0, batch / seen[0][0]))
        margin = MARGIN if batch > max(tried for tried, _ in seen) else 0.0
        too_much = needed * (1 + margin) > free
        return f"it may need {size(needed)} of memory, {size(free)} are free" if too_much else None

    def left_out(self, tried: Collection[Point]) -> list[str]:
        """One line for each batch size that was not started because it would not fit."""
        left: dict[int, str] = {}
        for point in self._space.points():
            batch = self._space.batch_of(point)
            if point not in tried and batch is not None and (why := self.problem(point)) is not None:
                left.setdefault(batch, why)
        return [f"a batch of {batch} was not started: {left[batch]}" for batch in sorted(left)]


def by_line(seen: list[tuple[int, int]], batch: int) -> int | None:
    """What a batch takes by the line through (batch, bytes), which never falls; None: of one size."""
    batches, counts = np.array(seen, dtype=np.float64).reshape(-1, 2).T
    if len(set(batches)) < 2:
        return None
    each, fixed = np.polyfit(batches, counts, 1)
    return round(float(fixed + each * batch if each > 0 else counts.mean()))
