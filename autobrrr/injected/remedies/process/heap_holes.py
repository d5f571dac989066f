"""Holes of glibc's heap that a remedy has left: filled with blocks that nobody writes to.

A hole serves what was a new mapping or new heap before, so that steps after the undo would have fewer page
faults than the job ever had, and its memory stays resident. A block that is not written to takes a header,
and address space.
"""

from __future__ import annotations

import time

from .glibc import Libc

SMALLEST_BYTES = 32 << 20  # blocks above it glibc never learns to keep; smaller holes come and go in any job
AT_MOST_S = 0.02  # of the thread's own time, which a busy machine does not lengthen: training stands still


def fill(libc: Libc, goal_bytes: int) -> None:
    """Fill the largest holes, until the heap has as many free bytes inside as it had.

    The pages of all holes go back to the system first. Large blocks must still come from the heap.

    Args:
        libc: Takes the blocks into its `plugs`.
        goal_bytes: Free bytes inside the heap before.
    """
    libc.malloc_trim(0)
    until_s = time.thread_time() + AT_MOST_S
    excess = libc.hole_bytes() - goal_bytes
    heap = libc.heap_bytes()
    size = 1 << max(0, excess.bit_length() - 1)
    while size >= SMALLEST_BYTES and time.thread_time() < until_s:
        if size > excess:
            size //= 2
            continue
        block = libc.malloc(size)
        if block and libc.heap_bytes() == heap and not libc.is_mapping(block):
            libc.plugs.append(block)
            excess -= size
            continue
        if block:  # no hole was as large
            libc.free(block)
            libc.malloc_trim(0)
            heap = libc.heap_bytes()
        size //= 2


def open_again(libc: Libc) -> None:
    """Give the holes back to the heap."""
    while libc.plugs:
        libc.free(libc.plugs.pop())
