"""The ring's memory: a memfd that this process writes and the sidecar reads.

In: sampled and plain records; out: bytes at their place. The file descriptor is handed over with the first
frame and closed; the mapping goes when the last reference to it does.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence

from . import ring_layout


class StepRing:
    """One ring."""

    def __init__(self, capacity: int = ring_layout.CAPACITY) -> None:
        self.capacity = capacity
        size = ring_layout.size_bytes(capacity)
        self.fd = os.memfd_create("autobrrr-ring", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self.fd, size)
            # Populated: else every thirtieth step would stand still for a page fault.
            mapped = mmap.mmap(self.fd, size, flags=mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0))
        except OSError:
            os.close(self.fd)
            raise
        self._mapped = mapped
        self.memory = memoryview(mapped)
        header = ring_layout.header(os.getpid(), capacity)
        self.memory[: len(header)] = header

    def close_fd(self) -> None:
        """The other side has its own descriptor now."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def release(self) -> None:
        """Give the memory back; nothing may write any more."""
        self.memory.release()
        self._mapped.close()

    def write_sampled(self, seq: int, fields: Sequence[int]) -> None:
        """The phases of a step. The tail, written after it, makes the record valid."""
        ring_layout.SAMPLED.pack_into(self.memory, ring_layout.offset_bytes(seq, self.capacity), *fields)

    def write_plain(
        self,
        ends_ns: Sequence[int],
        first: tuple[int, int, int, int],
        own_ns: int,
        device_ns: int = ring_layout.UNSTAMPED,
    ) -> int:
        """Records of plain steps, one after another; returns when the last one's hook had ended.

        Args:
            ends_ns: When each step ended.
            first: Start, own time, arm and sequence number of the first.
            own_ns: Own time between any two of them.
            device_ns: Of each: `UNSTAMPED` or `AWAITED`.
        """
        pack, memory, capacity = ring_layout.TAIL.pack_into, self.memory, self.capacity
        base, width = ring_layout.HEADER_BYTES + ring_layout.SAMPLED.size, ring_layout.RECORD_BYTES
        start, own, arm, seq = first
        for end in ends_ns:
            pack(memory, base + seq % capacity * width, start, end, own, device_ns, arm, 0, seq)
            seq += 1
            own = own_ns
            start = end + own
        return start

    def write_tail(self, fields: tuple[int, int, int, int, int, int, int]) -> None:
        """The rest of the record, in the ring's order."""
        at = ring_layout.offset_bytes(fields[-1], self.capacity) + ring_layout.SAMPLED.size
        ring_layout.TAIL.pack_into(self.memory, at, *fields)

    def write_device(self, seq: int, device_ns: int, flags: int = 0) -> None:
        """What a device took for a step whose record awaits it, and flags to be added before it is valid."""
        at = ring_layout.offset_bytes(seq, self.capacity)
        if flags:
            (before,) = ring_layout.FLAGS.unpack_from(self.memory, at + ring_layout.FLAGS_OFFSET)
            ring_layout.FLAGS.pack_into(self.memory, at + ring_layout.FLAGS_OFFSET, before | flags)
        ring_layout.DEVICE.pack_into(self.memory, at + ring_layout.DEVICE_OFFSET, device_ns)
