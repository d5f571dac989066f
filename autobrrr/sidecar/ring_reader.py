"""Reads the agent's ring of step records without ever stopping the agent.

In: the ring's file descriptor. Out: numpy structured arrays of the records that are new. A reader
that was overtaken says how many records it has lost.
"""

from __future__ import annotations

import mmap
import os

import numpy as np
from numpy.typing import NDArray

from autobrrr.agent import ring
from autobrrr.errors import AutobrrrError

RECORD = np.dtype(
    [(name, "i8") for name in ring.SAMPLED_FIELDS]
    + [("start_ns", "i8"), ("end_ns", "i8"), ("own_ns", "i8"), ("arm", "u4"), ("flags", "u4"), ("seq", "u8")]
)
Records = NDArray[np.void]  # of RECORD, one dimension, by sequence number
NO_RECORDS: Records = np.empty(0, dtype=RECORD)

UNREPRESENTATIVE = (
    ring.TRACED | ring.SKIPPED | ring.EVALUATION | ring.LEVER | ring.SETTLING | ring.AFTER_SHADOW
)


def representative(records: Records) -> Records:
    """The steps that stand for how the job trains: not traced, skipped, settling, ..."""
    kept: Records = records[records["flags"] & UNREPRESENTATIVE == 0]
    return kept


class RingReader:
    """Maps a ring read-only; every call of `read_new` returns what was not read before.

    Args:
        fd: The ring's memfd. It is not closed here and may be closed after this returned.

    Raises:
        AutobrrrError: the file is no ring of this layout.
    """

    def __init__(self, fd: int) -> None:
        length = os.fstat(fd).st_size
        if length < ring.HEADER_BYTES:
            raise AutobrrrError(f"the step ring has only {length} bytes")
        self._map = mmap.mmap(fd, length, prot=mmap.PROT_READ)
        magic, layout, record_bytes, self._capacity, _ = ring.HEADER.unpack_from(self._map)
        if (
            magic != ring.MAGIC
            or layout != ring.LAYOUT_VERSION
            or record_bytes != RECORD.itemsize
            or self._capacity < 2
            or length < ring.size_bytes(self._capacity)
        ):
            self._map.close()
            raise AutobrrrError(
                "the step ring has another layout than this version of autobrrr reads",
                "detach with the version that attached, or restart the job",
            )
        self._records: Records = np.frombuffer(
            self._map, dtype=RECORD, count=self._capacity, offset=ring.HEADER_BYTES
        )
        self._next = 0
        self.lost = 0  # records overwritten before they were read

    @property
    def steps(self) -> int:
        """Sequence number of the next record: how many steps have been seen or lost."""
        return self._next

    def read_new(self) -> Records:
        """Copies of the records since the last call, oldest first. Never waits."""
        first = self._next % self._capacity
        seq = int(self._records["seq"][first])
        if not self._written(first) or seq < self._next:
            return NO_RECORDS
        if seq > self._next:
            self._catch_up()
        batch = self._copy_run()
        if not self._overtaken():
            self._next += len(batch)
            return batch
        # Whatever the agent may have been overwriting while we copied is no further than one ring length
        # behind the newest number seen now.
        oldest_whole = max(self._newest() - self._capacity + 2, 0)
        numbers = self._next + np.arange(len(batch), dtype=np.uint64)
        whole: Records = batch[(batch["seq"] == numbers) & (numbers >= oldest_whole)]
        self.lost += len(batch) - len(whole)
        self._next += len(batch)
        return whole

    def close(self) -> None:
        self._records = NO_RECORDS
        try:
            self._map.close()
        except BufferError:  # somebody still holds a view; the mapping goes with it
            pass

    def _overtaken(self) -> bool:
        """Whether the slot before the next one was written anew: then the agent may be at the next one."""
        before = int(self._records["seq"][(self._next - 1) % self._capacity])
        return before != self._next - 1 if self._next else before == self._capacity - 1

    def _written(self, slot: int) -> bool:
        return int(self._records["end_ns"][slot]) != 0

    def _newest(self) -> int:
        return int(self._records["seq"].max())

    def _catch_up(self) -> None:
        """Skip what was overwritten, and a margin that the agent will not overwrite meanwhile."""
        oldest = self._newest() - self._capacity + 1 + self._capacity // 8
        self.lost += oldest - self._next
        self._next = oldest

    def _copy_run(self) -> Records:
        """All records from the next one on that follow each other without a gap.

        The agent writes a record's sequence number last. So it is read first, as in a seqlock: what is copied
        after that was written before.
        """
        first = self._next % self._capacity
        parts = []
        expected = self._next
        for begin, end in ((first, self._capacity), (0, first)):
            at = begin
            while at < end:
                upto = min(end, at + 512)
                numbers = expected + np.arange(upto - at, dtype=np.uint64)
                fits = (self._records["seq"][at:upto] == numbers) & (self._records["end_ns"][at:upto] != 0)
                count = len(fits) if fits.all() else int(fits.argmin())
                parts.append(self._records[at : at + count].copy())
                expected += count
                if count < upto - at:
                    return np.concatenate(parts)
                at = upto
        return np.concatenate(parts)
