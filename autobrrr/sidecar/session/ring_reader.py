"""Reads the agent's ring of step records without ever stopping the agent.

In: the ring's file descriptor. Out: numpy structured arrays of the records that are new. A reader
that was overtaken says how many records it has lost. A step whose time on a device is not known yet is not
read, and nothing after it: whoever gets a record gets it whole.

The file comes out of the job: it is read, never mapped, so that nothing which is done to it can end this
process.
"""

from __future__ import annotations

import os

import numpy as np

from autobrrr.agent.wire import ring_layout
from autobrrr.errors import CannotAttach
from autobrrr.tuner.job_under_test import STEP, Steps

Records = Steps  # one dimension, by sequence number
NO_RECORDS: Records = np.empty(0, dtype=STEP)


def representative(records: Records) -> Records:
    """The steps that stand for how the job trains: not traced, skipped, settling, ..."""
    kept: Records = records[records["flags"] & ring_layout.UNREPRESENTATIVE == 0]
    return kept


MOST_CAPACITY = 1 << 16
MOST_IN_RUN = 64  # records that are looked at together


class NoRing(CannotAttach):
    """What a job handed over, or made of it since, is no ring of step records."""

    def __init__(self, why: str, hint: str = "restart the job, then attach again") -> None:
        super().__init__(f"the job's step ring {why}", hint)


class RingReader:
    """Reads a ring; every call of `read_new` returns what was not read before.

    Args:
        fd: The ring's memfd. It is not closed here and may be closed after this returned.

    Raises:
        NoRing: the file is no ring of this layout.
    """

    def __init__(self, fd: int) -> None:
        length = os.fstat(fd).st_size
        if length < ring_layout.HEADER_BYTES:
            raise NoRing(f"has only {length} bytes")
        try:
            head = os.pread(fd, ring_layout.HEADER.size, 0)
        except OSError as error:
            raise NoRing(f"can't be read: {error.strerror}") from None
        magic, layout, record_bytes, self._capacity, _ = ring_layout.HEADER.unpack(head)
        if (
            magic != ring_layout.MAGIC
            or layout != ring_layout.LAYOUT_VERSION
            or record_bytes != STEP.itemsize
            or not 2 <= self._capacity <= MOST_CAPACITY
            or length < ring_layout.size_bytes(self._capacity)
        ):
            raise NoRing(
                "has another layout than this version of autobrrr reads",
                "detach with the version that attached, or restart the job",
            )
        self._fd = os.dup(fd)
        self._next = 0
        self.lost = 0  # records overwritten before they were read

    @property
    def steps(self) -> int:
        """Sequence number of the next record: how many steps have been seen or lost."""
        return self._next

    def read_new(self) -> Records:
        """Copies of the records since the last call, oldest first. Never waits.

        Raises:
            NoRing: it can't be read any more.
        """
        if self._fd < 0:
            return NO_RECORDS
        if self._overtaken():
            self._catch_up()
        runs = [NO_RECORDS]
        while len(run := self._copy_run()) and not self._overtaken():
            runs.append(run)
            self._next += len(run)
        return np.concatenate(runs)

    def again(self) -> RingReader:
        """Another reader of the same ring, from its oldest record on; for another thread."""
        return RingReader(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _look(self, begin: int, end: int) -> Records:
        """The records of these slots as they are now."""
        wanted = (end - begin) * STEP.itemsize
        try:
            raw = os.pread(self._fd, wanted, ring_layout.HEADER_BYTES + begin * STEP.itemsize)
        except OSError as error:
            raise NoRing(f"can't be read any more: {error.strerror}") from None
        if len(raw) < wanted:
            raise NoRing("ends before its last record")
        records: Records = np.frombuffer(raw, dtype=STEP)
        return records

    def _overtaken(self) -> bool:
        """Whether the slot before the next one was written anew: then the agent may be at the next one."""
        slot = (self._next - 1) % self._capacity
        return int(self._look(slot, slot + 1)["seq"][0]) >= max(self._next, 1)

    def _catch_up(self) -> None:
        """Skip what was overwritten, and a margin that the agent will not overwrite meanwhile."""
        newest = int(self._look(0, self._capacity)["seq"].max())
        oldest = max(self._next, newest - self._capacity + 2 + self._capacity // 8)
        self.lost += oldest - self._next
        self._next = oldest

    def _copy_run(self) -> Records:
        """The next records that follow each other without a gap, at most so many as one run has.

        The agent writes a record's sequence number last. So it is read first, as in a seqlock: what is copied
        after that was written before.
        """
        first = self._next % self._capacity
        seen = self._look(first, min(first + MOST_IN_RUN, self._capacity))
        numbers = self._next + np.arange(len(seen), dtype=np.uint64)
        known = seen["device_ns"] != ring_layout.AWAITED
        fits = (seen["seq"] == numbers) & (seen["end_ns"] != 0) & known
        count = len(fits) if fits.all() else int(fits.argmin())
        return self._look(first, first + count) if count else NO_RECORDS
