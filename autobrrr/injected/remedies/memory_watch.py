"""Host memory while a remedy is on: what the job needs stays free, and the peak is told.

In: the limits on the host's memory, looked at from the agent's thread. Out: why the newest remedy of the
session must be reverted; the job's peak since it was applied. Remedies are judged by time: without this a
faster job may be one that the kernel kills a second later.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ..live_torch.available_memory import MemoryLimit, figure, host_limits

LOOK_MS, IDLE_LOOK_MS = 50, 250  # 0.1 to 0.2 ms of CPU a look, half of it without the GIL
PLENTY_BYTES = 4 << 30  # so much can't be half taken between two idle looks: pages come at some GiB a second
SETTLED_S = 2.0  # after a revert: what the remedy took may be given back late
ANOTHER_S = 1.0  # after a revert, before an older remedy goes too


class MemoryWatch:
    """The memory of one job. `look` is called on the agent's thread, all else on the training thread."""

    def __init__(self, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> None:
        self.root = root
        self._clock = clock
        self._limits: list[tuple[MemoryLimit, int]] = []  # each with the least that the job alone left of it
        self._due_s = self._settled_s = self._patient_until_s = 0.0
        self.every_ms = IDLE_LOOK_MS
        self.trouble: str | None = None
        self.peak_bytes: int | None = None  # of the job since `begin`

    def begin(self) -> None:
        """A remedy is about to go on."""
        self._due_s = 0.0
        self.look(on=False)
        self.peak_bytes, self._due_s = None, 0.0

    def reverted(self) -> None:
        """A remedy is off: what it took is given back soon."""
        now_s = self._clock()
        self._settled_s = now_s + SETTLED_S
        if self.trouble is not None:
            self.trouble, self._patient_until_s = None, now_s + ANOTHER_S

    def look(self, *, on: bool) -> bool:
        """Look where it is time; whether a remedy must be reverted now.

        Args:
            on: A remedy of the session is on.
        """
        now_s = self._clock()
        if now_s < self._due_s:
            return False
        if not self._limits:
            self._limits = [(limit, limit.total_bytes) for limit in host_limits(self.root)]
        left = [limit.left() for limit, _ in self._limits]
        is_plenty = all(each is None or each > PLENTY_BYTES for each in left)
        self.every_ms = LOOK_MS if on and not is_plenty else IDLE_LOOK_MS
        self._due_s = now_s + self.every_ms / 1000
        if on:
            self._compare(left, patient=now_s < self._patient_until_s)
            return self.trouble is not None
        self.trouble = None
        if now_s >= self._settled_s:
            self._limits = [
                (limit, least if now is None else min(least, now))
                for (limit, least), now in zip(self._limits, left, strict=True)
            ]
        return False

    def _compare(self, left: list[int | None], *, patient: bool) -> None:
        used = [
            limit.total_bytes - now
            for (limit, _), now in zip(self._limits, left, strict=True)
            if limit.of_group and now is not None
        ]
        if used:
            self._saw(min(used))
        elif (resident := figure(self.root / "proc/self/status", "VmRSS")) is not None:
            self._saw(resident * 1024)
        for (_, least), now in zip(self._limits, left, strict=True):
            if now is not None and now < least // 2 and not patient:
                self.trouble = (
                    f"memory ran short: {least >> 20} MiB were free before it was on, {now >> 20} MiB with it"
                )

    def _saw(self, used: int) -> None:
        self.peak_bytes = max(used, self.peak_bytes or 0)
