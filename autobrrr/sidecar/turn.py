"""The ranks of one job are measured one at a time: what is done to one, all the others wait for.

In: the name of the job. Out: a turn that one sidecar of the job holds at a time: a lock on a file in the
folder of the sessions, which the kernel lets go of when its holder dies.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol

PREFIX = "ranks-"
TURN_NS = 120_000_000_000  # a rank that holds the turn for longer measures nothing any more


class Turn(Protocol):
    """The right to measure."""

    def take(self) -> bool:
        """Whether it is ours now, or already was."""

    def elsewhere(self) -> bool:
        """Whether another one has it now."""

    def give(self) -> None:
        """Let the next one have it."""


class Alone:
    """The turn of a job of one rank."""

    def take(self) -> bool:
        return True

    def elsewhere(self) -> bool:
        return False

    def give(self) -> None:
        return None


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


class RankTurn:
    """The turn of one rank of a job.

    Args:
        folder: Where the sessions of the job's user lie; it must be there.
        job: The same for all ranks of the job.
    """

    def __init__(self, folder: Path, job: str) -> None:
        self._path = folder / f"{PREFIX}{job}.lock"
        self._fd: int | None = None

    def take(self) -> bool:
        """Whether it is ours now, or already was. A folder that can't be written holds nobody up."""
        if self._fd is not None:
            return True
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its last holder may have removed it since we opened it.
            if os.stat(self._path).st_ino == os.fstat(fd).st_ino:
                self._fd = fd
                return True
        except OSError:
            pass
        os.close(fd)
        return False

    def elsewhere(self) -> bool:
        """Whether another one has it now. A file without a holder is one that was killed."""
        if self._fd is not None:
            return False
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(fd)
        return False

    def give(self) -> None:
        """Let the next one have it; may be called when it is not ours."""
        fd, self._fd = self._fd, None
        if fd is not None:
            with suppress(OSError):
                self._path.unlink()
            os.close(fd)
