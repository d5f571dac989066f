"""The processors of the machine, and those that one process may use; None where the kernel does not tell. And
what a fault of a page costs on them.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path

from autobrrr.machine import kernel_text
from autobrrr.machine.control_groups import GROUPS, cpu_quota
from autobrrr.machine.kernel_text import number
from autobrrr.machine.procfs import PROC, TICK_NS

PAGES = 512
ROUNDS = 3


def own_cpu_ns() -> int:
    """CPU time of this process, and of the processes of its own that have ended."""
    return round(1e9 * sum(os.times()[:4]))


def machine_ticks(proc: Path = PROC) -> tuple[int, int] | None:
    """All CPU time of the machine and the part of it that was stolen, in ticks."""
    first = (kernel_text.lines(proc / "stat") or [""])[0]
    fields = [ticks for field in first.split()[1:9] if (ticks := number(field)) is not None]
    return (sum(fields), fields[7]) if len(fields) == 8 else None


def busy_ns(pid: int, proc: Path = PROC) -> int | None:
    """Time in which the CPUs that a process may use ran anything; None where one of them is not listed."""
    allowed, found = allowed_cpus(pid), {}
    for line in kernel_text.lines(proc / "stat"):
        name, _, ticks = line.partition(" ")
        if (cpu := number(name.removeprefix("cpu"))) is not None:
            user, nice, system, _idle, _wait, irq, soft, *_ = map(int, ticks.split())
            found[cpu] = user + nice + system + irq + soft
    return TICK_NS * sum(found[cpu] for cpu in allowed) if allowed and allowed <= found.keys() else None


def allowed_cpus(pid: int) -> frozenset[int] | None:
    """The CPUs that a process may run on; None where it is gone."""
    try:
        return frozenset(os.sched_getaffinity(pid))
    except OSError:
        return None


def usable_cpus(pid: int, proc: Path = PROC, groups: Path = GROUPS) -> int | None:
    """CPUs that a process may run on, or have the time of; None where it is gone."""
    allowed, quota = allowed_cpus(pid), cpu_quota(pid, proc, groups)
    if allowed is None:
        return None
    return len(allowed) if quota is None else max(1, min(len(allowed), math.ceil(quota)))


def multiplies_bf16(proc: Path = PROC) -> bool | None:
    """Whether the processor has instructions for products of bfloat16; None where it can't be told."""
    for line in kernel_text.lines(proc / "cpuinfo"):
        if line.startswith(("flags", "Features")):
            return not {"amx_bf16", "avx512_bf16", "bf16"}.isdisjoint(line.split())
    return None


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
            with contextlib.suppress(OSError):  # a kernel without huge pages
                memory.madvise(mmap.MADV_NOHUGEPAGE)
            first, second = (_touch_ns(memory, page, clock_ns) for _ in range(2))
        found.append((first - second) / PAGES)
    least = min(found)
    return least if least > 0 else None


def _touch_ns(memory: mmap.mmap, page: int, clock_ns: Callable[[], int]) -> int:
    began = clock_ns()
    for at in range(0, PAGES * page, page):
        memory[at] = 1
    return clock_ns() - began
