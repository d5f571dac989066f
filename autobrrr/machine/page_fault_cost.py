"""What a minor page fault costs on this machine: first touches of fresh pages, less second ones.

Differs tenfold between machines (virtualisation, mitigations). Takes some milliseconds of one core.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable

PAGES = 512
ROUNDS = 3


def fault_cost_ns(clock_ns: Callable[[], int] = time.perf_counter_ns) -> float | None:
    """Nanoseconds of one fault of a small page, the least of a few rounds; None where it can't be told."""
    page = mmap.PAGESIZE
    found = []
    for _ in range(ROUNDS):
        try:
            memory = mmap.mmap(-1, PAGES * page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError:
            return None
        with memory:
            if hasattr(mmap, "MADV_NOHUGEPAGE"):
                try:
                    memory.madvise(mmap.MADV_NOHUGEPAGE)
                except OSError:
                    pass  # a kernel without huge pages
            first, second = (_touch_ns(memory, page, clock_ns) for _ in range(2))
        found.append((first - second) / PAGES)
    least = min(found)
    return least if least > 0 else None


def _touch_ns(memory: mmap.mmap, page: int, clock_ns: Callable[[], int]) -> int:
    began = clock_ns()
    for at in range(0, PAGES * page, page):
        memory[at] = 1
    return clock_ns() - began
