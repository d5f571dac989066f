"""How much CPU others take on the CPUs that this process may use: what its own threads did not burn.

In: two looks at `/proc/stat` and at this process' own CPU time. Out: cores that others kept busy
between them. No thread can have waited longer for others than they ran: a bound on what delay is theirs.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from ..wire.plain_number import whole_number

LEAST_NS = 50_000_000  # between two looks: ticks are 10 ms long


class ForeignLoad:
    """Between its making and `cores`."""

    def __init__(self) -> None:
        self._cpus = _allowed()
        self._tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        self._began = self._look()

    def cores(self) -> float | None:
        """Cores that others kept busy since, one tick of each CPU added; None where it is not known."""
        began, now = self._began, self._look()
        if began is None or now is None or now[0] - began[0] < LEAST_NS:
            return None
        # Counting is coarse: a tick more on each CPU is what may have been missed.
        busy_ns = (now[1] - began[1] + len(self._cpus)) * self._tick_ns
        return max(0, busy_ns - (now[2] - began[2])) / (now[0] - began[0])

    def _look(self) -> tuple[int, int, int] | None:
        """Wall time, busy ticks of the CPUs, this process' own CPU time."""
        try:
            lines = Path("/proc/stat").read_text().strip("\n").split("\n")
        except OSError:
            return None
        ticks = busy_ticks(lines, self._cpus)
        return None if ticks is None else (time.perf_counter_ns(), ticks, time.process_time_ns())


def busy_ticks(lines: list[str], cpus: frozenset[int]) -> int | None:
    """Ticks in which some CPUs ran anything, by the lines of `/proc/stat`; None where one is not listed."""
    found = {}
    for line in lines:
        name, _, rest = line.partition(" ")
        cpu = whole_number(name[3:]) if name[:3] == "cpu" else None
        if cpu is not None:
            user, nice, system, _idle, _wait, irq, soft, *_ = map(int, rest.split())
            found[cpu] = user + nice + system + irq + soft
    if not cpus or not cpus <= found.keys():
        return None
    return sum(found[cpu] for cpu in cpus)


def _allowed() -> frozenset[int]:
    try:
        return frozenset(os.sched_getaffinity(0))
    except OSError:
        return frozenset()


def scheduled_ns(tid: int | None) -> tuple[int, int] | None:
    """How long a thread has run, and waited for a CPU, since it began; None where the kernel does not say."""
    try:
        ran, waited = Path(f"/proc/self/task/{tid}/schedstat").read_text(encoding="ascii").split()[:2]
    except (OSError, ValueError):
        return None
    return int(ran), int(waited)
