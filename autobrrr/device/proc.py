"""Reading `/proc`: the few fields that this program needs, None where a process or thread is gone.

Takes the root of the file system as an argument; a test gives a folder of its own.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from autobrrr.agent import foreign_load

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    """Fields of `/proc/PID/stat`."""

    state: str
    parent: int
    cpu_ticks: int  # user and system, of the process itself
    threads: int
    start_ticks: int
    rss_pages: int


def stat(pid: int, proc: Path = PROC) -> Stat | None:
    """The process's figures."""
    text = _read(proc / str(pid) / "stat")
    if text is None:
        return None
    # The name stands in parentheses and may hold anything, also parentheses and blanks.
    fields = text[text.rfind(")") + 2 :].split()
    if len(fields) < 22:
        return None
    return Stat(
        state=fields[0],
        parent=int(fields[1]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        threads=int(fields[17]),
        start_ticks=int(fields[19]),
        rss_pages=int(fields[21]),
    )


def owner(pid: int, proc: Path = PROC) -> int | None:
    """Effective uid of a process."""
    text = _read(proc / str(pid) / "status")
    for line in (text or "").splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[2])
    return None


def run_delay_ns(pid: int, tid: int, proc: Path = PROC) -> int | None:
    """How long a thread has been ready to run but had no CPU, since it began."""
    text = _read(proc / str(pid) / "task" / str(tid) / "schedstat")
    fields = (text or "").split()
    return int(fields[1]) if len(fields) >= 2 else None


def machine_ticks(proc: Path = PROC) -> tuple[int, int] | None:
    """All CPU time of the machine and the part of it that was stolen, in ticks."""
    text = _read(proc / "stat")
    fields = [int(field) for field in (text or "").split("\n", 1)[0].split()[1:9]]
    return (sum(fields), fields[7]) if len(fields) == 8 else None


def busy_ticks(pid: int, proc: Path = PROC) -> int | None:
    """Ticks in which the CPUs that a process may use ran anything; None where one of them is not listed."""
    status, text = _read(proc / str(pid) / "status"), _read(proc / "stat")
    allowed = [line for line in (status or "").splitlines() if line.startswith("Cpus_allowed_list:")]
    if not allowed or text is None:
        return None
    return foreign_load.busy_ticks(text.splitlines(), cpu_list(allowed[0].split(":", 1)[1]))


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
        low, _, high = part.partition("-")
        if low.isdecimal():
            found.update(range(int(low), int(high or low) + 1))
    return frozenset(found)


def cpu_quota(pid: int, proc: Path = PROC, cgroups: Path = CGROUPS) -> float | None:
    """CPUs' worth of time that its control group (v2) or one above it grants; None without a limit."""
    text = _read(proc / str(pid) / "cgroup")
    group = next((line[3:].strip("/") for line in (text or "").splitlines() if line.startswith("0::")), None)
    if group is None:
        return None
    folder, limits = cgroups / group, []
    while True:
        quota, _, period = (_read(folder / "cpu.max") or "").partition(" ")
        if quota.isdecimal() and period.strip().isdecimal():
            limits.append(int(quota) / int(period))
        if folder == cgroups:
            return min(limits, default=None)
        folder = folder.parent


def throttled_ns(pid: int, proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """How long the CPU limit of its control group (v2) has stopped a process; None without a limit."""
    text = _read(proc / str(pid) / "cgroup")
    for line in (text or "").splitlines():
        if line.startswith("0::"):
            group = line[3:].lstrip("/")
            figures = dict(
                entry.split()[:2] for entry in (_read(cgroups / group / "cpu.stat") or "").splitlines()
            )
            found = figures.get("throttled_usec", "")
            return 1_000 * int(found) if found.isdecimal() and figures.get("nr_periods") != "0" else None
    return None


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
            text = _read(thread / "children")
            born = [int(word) for word in (text or "").split()]
            found += born
            waiting += born
    return found


def multiplies_bf16(proc: Path = PROC) -> bool | None:
    """Whether the processor has instructions for products of bfloat16; None where it can't be told."""
    text = _read(proc / "cpuinfo")
    for line in (text or "").splitlines():
        if line.startswith(("flags", "Features")):
            return not {"amx_bf16", "avx512_bf16", "bf16"}.isdisjoint(line.split())
    return None


def tid_outside(pid: int, tid_inside: int, proc: Path = PROC) -> int | None:
    """The thread that calls itself `tid_inside` in its own pid namespace, as it is known here."""
    try:
        threads = [int(entry.name) for entry in (proc / str(pid) / "task").iterdir()]
    except OSError:
        return None
    for tid in threads:
        text = _read(proc / str(pid) / "task" / str(tid) / "status")
        for line in (text or "").splitlines():
            if line.startswith("NSpid:") and int(line.split()[-1]) == tid_inside:
                return tid
    return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None
