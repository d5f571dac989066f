"""The turn of a rank to be measured: the ranks of one job are measured one at a time.

What is done to one, all the others wait for. The turn is a lock on a file in the folder of the sessions. The
kernel lets go of it when its holder dies.
"""

from __future__ import annotations

from pathlib import Path

from autobrrr import folders

PREFIX = "ranks-"
TURN_NS = 120_000_000_000  # a rank that holds the turn for longer measures nothing any more


class RankLock:
    """The turn of one rank of a job to be measured; who holds it for too long is passed over.

    Args:
        folder: Where the sessions of the job lie; None: it has one rank, whose turn it always is.
        job: The same for all ranks of the job.
    """

    def __init__(self, folder: Path | None = None, job: str = "") -> None:
        self._file = None if folder is None else folder / f"{PREFIX}{job}.lock"
        self._lock: int | None = None
        self._since_ns: int | None = None  # another one has it

    def take(self, now_ns: int) -> bool:
        """Whether it is ours now, or already was. A folder that can't be written holds nobody up."""
        if self._file is not None and self._lock is None:
            try:
                self._lock = folders.lock(self._file)
            except OSError:
                return True
            return self._lock is not None or not self._awaited(now_ns)
        return True

    def elsewhere(self, now_ns: int) -> bool:
        """Whether another one has it now."""
        if self._file is None or self._lock is not None or not folders.is_locked(self._file):
            self._since_ns = None
            return False
        return self._awaited(now_ns)

    def _awaited(self, now_ns: int) -> bool:
        """Whether who has it is still waited for."""
        self._since_ns = now_ns if self._since_ns is None else self._since_ns
        return now_ns - self._since_ns < TURN_NS

    def give(self) -> None:
        """Let the next one have it; may be called when it is not ours."""
        lock, self._lock = self._lock, None
        if lock is not None and self._file is not None:
            folders.unlock(self._file, lock)
