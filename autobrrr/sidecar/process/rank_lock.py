"""The ranks of one job are measured one at a time: what is done to one, all the others wait for.

In: the name of the job. Out: a turn that one sidecar of the job holds at a time: a lock on a file in the
folder of the sessions, which the kernel lets go of when its holder dies.
"""

from __future__ import annotations

from pathlib import Path

from autobrrr import folders

PREFIX = "ranks-"
TURN_NS = 120_000_000_000  # a rank that holds the turn for longer measures nothing any more


class Waiting:
    """For something that another rank does; not for ever."""

    def __init__(self) -> None:
        self._since_ns: int | None = None

    def over(self, now_ns: int, free: bool) -> bool:
        """Whether to go on: nobody is in the way, or somebody has been for too long."""
        if free:
            self._since_ns = None
            return True
        self._since_ns = now_ns if self._since_ns is None else self._since_ns
        return now_ns - self._since_ns >= TURN_NS


class RankLock:
    """The turn of one rank of a job to be measured.

    Args:
        folder: Where the sessions of the job lie; None: it has one rank, whose turn it always is.
        job: The same for all ranks of the job.
    """

    def __init__(self, folder: Path | None = None, job: str = "") -> None:
        self._file = None if folder is None else folder / f"{PREFIX}{job}.lock"
        self._lock: int | None = None

    def take(self) -> bool:
        """Whether it is ours now, or already was. A folder that can't be written holds nobody up."""
        if self._file is None:
            return True
        if self._lock is None:
            try:
                self._lock = folders.lock(self._file)
            except OSError:
                return True
        return self._lock is not None

    def elsewhere(self) -> bool:
        """Whether another one has it now."""
        return self._file is not None and self._lock is None and folders.is_locked(self._file)

    def give(self) -> None:
        """Let the next one have it; may be called when it is not ours."""
        lock, self._lock = self._lock, None
        if lock is not None and self._file is not None:
            folders.unlock(self._file, lock)
