"""What a process may still take of what the agent needs: descriptors, threads, addresses, memory.

In goes a pid; out comes a `Finding` where something is short. Nothing is stopped or changed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from autobrrr.agent.live_torch.available_memory import figure
from autobrrr.errors import AutobrrrError, CannotAttach
from autobrrr.machine import control_groups
from autobrrr.machine.control_groups import GROUPS
from autobrrr.machine.kernel_text import number
from autobrrr.machine.procfs import PROC

# What attach, traced steps, a batch probe and a profiler window took at most of a job with torch 2.13 on
# Linux 6.18: 5 descriptors, 2 threads, 149 MiB of addresses (75 of them without a window: a stack of 8
# and what malloc reserves for a thread) and 24 MiB of memory, beside the log of a step of many operators, for
# which the agent looks at what is left. The rest of each is left to the job.
DESCRIPTORS = 16
THREADS = 2
ADDRESS_BYTES = 160 << 20
MEMORY_BYTES = 32 << 20
_MIB = 1 << 20


class Finding(NamedTuple):
    """An objection against attaching."""

    detail: str
    fix: str
    error: type[AutobrrrError] = CannotAttach


def descriptors(pid: int, proc: Path = PROC, groups: Path = GROUPS) -> Finding | None:
    """Whether fewer than `DESCRIPTORS` file descriptors are free."""
    most = figure(proc / str(pid) / "limits", "Max open files")
    if most is None:
        return None
    try:
        taken = [fd for entry in os.listdir(proc / str(pid) / "fd") if (fd := number(entry)) is not None]
    except OSError:
        return None
    free = most - sum(fd < most for fd in taken)  # those beyond were opened before the limit was lowered
    if free >= DESCRIPTORS:
        return None
    return Finding(
        f"process {pid} has {free or 'no'} file descriptor{'' if free == 1 else 's'} left "
        f"of the {most} that it may open; {DESCRIPTORS} must be free",
        _raised(pid, "nofile", _round_up(max(taken, default=0) + 1 + DESCRIPTORS)),
    )


def threads(pid: int, proc: Path = PROC, groups: Path = GROUPS) -> Finding | None:
    """Whether its control group allows fewer threads than the agent starts."""
    found = control_groups.spare_tasks(pid, proc, groups)
    if found is None or found[0] >= THREADS:
        return None
    return Finding(
        f"the control group of process {pid} has {found[0] or 'no'} "
        f"thread{'' if found[0] == 1 else 's'} left of the {found[1]} that it allows; "
        f"the agent needs {THREADS}",
        "raise its pids.max (docker update --pids-limit, TasksMax= of systemd)",
    )


def addresses(pid: int, proc: Path = PROC, groups: Path = GROUPS) -> Finding | None:
    """Whether its limit on addresses leaves too little for a thread, the ring and the agent's code.

    It is counted from the peak: the next step may need that again.
    """
    most = figure(proc / str(pid) / "limits", "Max address space")
    peak = figure(proc / str(pid) / "status", "VmPeak")
    if most is None or peak is None:
        return None
    spare = max(0, most - 1024 * peak)
    if spare >= ADDRESS_BYTES:
        return None
    return Finding(
        f"process {pid} may map {_mib(spare)} more (ulimit -v); {_mib(ADDRESS_BYTES)} must be free",
        _raised(pid, "as", _round_up(1024 * peak + 2 * ADDRESS_BYTES, _MIB)),
    )


def memory(pid: int, proc: Path = PROC, groups: Path = GROUPS) -> Finding | None:
    """Whether its control group would kill it for what the agent takes."""
    spare = control_groups.spare_memory_bytes(pid, proc, groups)
    if spare is None or spare >= MEMORY_BYTES:
        return None
    return Finding(
        f"the control group of process {pid} has {_mib(spare)} of memory left, and kills beyond; "
        f"attach takes 24 MiB, so {_mib(MEMORY_BYTES)} must be free",
        "raise its memory.max (docker update --memory), or watch from outside: autobrrr attach --outside "
        f"{pid}",
    )


def _raised(pid: int, flag: str, wanted: int) -> str:
    """What raises a limit while the process runs."""
    return f"prlimit --pid {pid} --{flag}={wanted}: (as root also beyond its hard limit: {wanted}:{wanted})"


def _round_up(count: int, to: int = 64) -> int:
    return -(-count // to) * to


def _mib(count: int) -> str:
    return f"{count / _MIB:.0f} MiB" if count >= 10 * _MIB else f"{count / _MIB:.1f} MiB"
