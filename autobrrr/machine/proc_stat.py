"""Reading `/proc`: the few fields that this program needs, None where a process or thread is gone.

Takes the root of the file system as an argument; a test gives a folder of its own.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from autobrrr.injected.measure import cpu_contention
from autobrrr.machine import kernel_text
from autobrrr.machine.kernel_text import number

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
MOST_CPUS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStat:
    """Fields of `/proc/PID/stat`."""

    state: str
    parent: int
    cpu_ticks: int  # user and system, of the process itself
    threads: int
    start_ticks: int
    rss_pages: int


def stat(pid: int, proc: Path = PROC) -> ProcessStat | None:
    """The process's figures."""
    found = kernel_text.stat(proc / str(pid))
    if found is None:
        return None
    return ProcessStat(
        state=found.state,
        parent=found.figure(4),
        cpu_ticks=found.figure(14) + found.figure(15),
        threads=found.figure(20),
        start_ticks=found.figure(22),
        rss_pages=found.figure(24),
    )


def owner(pid: int, proc: Path = PROC) -> int | None:
    """Effective uid of a process."""
    uids = kernel_text.status(proc / str(pid)).get("Uid", "").split()
    return number(uids[1]) if len(uids) > 1 else None


def run_delay_ns(pid: int, tid: int, proc: Path = PROC) -> int | None:
    """How long a thread has been ready to run but had no CPU, since it began."""
    fields = (kernel_text.text(proc / str(pid) / "task" / str(tid) / "schedstat") or "").split()
    return number(fields[1]) if len(fields) >= 2 else None


def machine_ticks(proc: Path = PROC) -> tuple[int, int] | None:
    """All CPU time of the machine and the part of it that was stolen, in ticks."""
    first = (kernel_text.lines(proc / "stat") or [""])[0]
    fields = [ticks for field in first.split()[1:9] if (ticks := number(field)) is not None]
    return (sum(fields), fields[7]) if len(fields) == 8 else None


def busy_ticks(pid: int, proc: Path = PROC) -> int | None:
    """Ticks in which the CPUs that a process may use ran anything; None where one of them is not listed."""
    allowed = kernel_text.status(proc / str(pid)).get("Cpus_allowed_list")
    lines = kernel_text.lines(proc / "stat")
    return None if allowed is None or not lines else cpu_contention.busy_ticks(lines, cpu_list(allowed))


def usable_cpus(pid: int, proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """CPUs that a process may run on, or have the time of; None where it is gone."""
    try:
        allowed = len(os.sched_getaffinity(pid))
    except OSError:
        return None
    quota = cpu_quota(pid, proc, cgroups)
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def cpu_list(text: str) -> frozenset[int]:
    """The CPUs in the kernel's notation: "0-2,8"."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, end = part.partition("-")
        low, high = number(first), number(end or first)
        if low is not None and high is not None and high < MOST_CPUS:
            found.update(range(low, high + 1))
    return frozenset(found)


def cpu_quota(pid: int, proc: Path = PROC, cgroups: Path = CGROUPS) -> float | None:
    """CPUs' worth of time that its control group (v2) or one above it grants; None without a limit."""
    group = _group(pid, proc)
    if group is None:
        return None
    folder, limits = cgroups / group, []
    while True:
        quota, _, period = (kernel_text.text(folder / "cpu.max") or "").partition(" ")
        granted, every = number(quota), number(period)
        if granted is not None and every:
            limits.append(granted / every)
        if folder == cgroups:
            return min(limits, default=None)
        folder = folder.parent


def throttled_ns(pid: int, proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """How long the CPU limit of its control group (v2) has stopped a process; None without a limit."""
    group = _group(pid, proc)
    if group is None:
        return None
    lines = (line.partition(" ") for line in kernel_text.lines(cgroups / group / "cpu.stat"))
    figures = {name: number(value) for name, _, value in lines}
    stopped_us = figures.get("throttled_usec")
    return None if stopped_us is None or figures.get("nr_periods") == 0 else 1_000 * stopped_us


def _group(pid: int, proc: Path) -> str | None:
    """Its control group (v2) below the root of all groups; a name in it may not lead out of that."""
    lines = kernel_text.lines(proc / str(pid) / "cgroup")
    group = next((line[3:].strip("/") for line in lines if line.startswith("0::")), None)
    return None if group is None or ".." in group.split("/") else group


def children(pid: int, proc: Path = PROC) -> list[int]:
    """Children of all threads of a process, and theirs; empty where the kernel does not tell."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        try:
            threads = list((proc / str(parent) / "task").iterdir())
        except OSError:
            continue
        for thread in threads:
            words = (kernel_text.text(thread / "children") or "").split()
            born = [child for word in words if (child := number(word)) is not None]
            found += born
            waiting += born
    return found


def multiplies_bf16(proc: Path = PROC) -> bool | None:
    """Whether the processor has instructions for products of bfloat16; None where it can't be told."""
    for line in kernel_text.lines(proc / "cpuinfo"):
        if line.startswith(("flags", "Features")):
            return not {"amx_bf16", "avx512_bf16", "bf16"}.isdisjoint(line.split())
    return None


def tid_outside(pid: int, tid_inside: int, proc: Path = PROC) -> int | None:
    """The thread that calls itself `tid_inside` in its own pid namespace, as it is known here."""
    try:
        threads = [tid for entry in (proc / str(pid) / "task").iterdir() if (tid := number(entry.name))]
    except OSError:
        return None
    for tid in threads:
        known = kernel_text.status(proc / str(pid) / "task" / str(tid)).get("NSpid", "").split()
        if known and number(known[-1]) == tid_inside:
            return tid
    return None
