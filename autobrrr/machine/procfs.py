"""Processes as `/proc` shows them. Every function takes the root of proc, so that tests bring their own.

What a process chose itself (its name, its command line, its environment) comes out as `Foreign`. A process
that is gone, or whose files are not for us, gives None or an empty value, never an error,
except where a docstring says so.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autobrrr.machine import kernel_text
from autobrrr.machine.kernel_text import number
from autobrrr.readable import Foreign

PROC = Path("/proc")
MOST_COMMAND_BYTES = 1 << 17
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    """The fields of `/proc/PID/stat` that are used here."""

    comm: Foreign
    state: str  # one letter: R, S, D, T, t, Z, X
    ppid: int
    cpu_ns: int  # user and system time of the process, or of the thread
    kernel_ns: int  # the part of it that the kernel spent for it
    start_ticks: int  # since boot: with the pid it names a process for good


def stat(pid: int, proc: Path = PROC, tid: int | None = None) -> Stat | None:
    """State, parent, CPU time and start time of a process or of one of its threads."""
    found = kernel_text.stat(_folder(pid, proc, tid))
    if found is None:
        return None
    return Stat(
        comm=Foreign(found.name),
        state=found.state,
        ppid=found.figure(4),
        cpu_ns=(found.figure(14) + found.figure(15)) * 1_000_000_000 // _TICKS_PER_S,
        kernel_ns=found.figure(15) * 1_000_000_000 // _TICKS_PER_S,
        start_ticks=found.figure(22),
    )


def status(pid: int, proc: Path = PROC, tid: int | None = None) -> dict[str, str]:
    """`/proc/PID/status` as a mapping; empty where it can't be read."""
    return kernel_text.status(_folder(pid, proc, tid))


def _folder(pid: int, proc: Path, tid: int | None) -> Path:
    return proc / str(pid) if tid is None else proc / str(pid) / "task" / str(tid)


def start_ticks(pid: int, proc: Path = PROC) -> int | None:
    """When the process started; None where there is none."""
    found = stat(pid, proc)
    return None if found is None else found.start_ticks


def is_alive(pid: int, ticks: int, proc: Path = PROC) -> bool:
    """Whether the process that started then still runs; what has ended but was not waited for does not."""
    found = stat(pid, proc)
    return found is not None and found.start_ticks == ticks and found.state not in "ZX"


def cmdline(pid: int, proc: Path = PROC) -> list[Foreign]:
    """The command, word by word, as far as its first hundred thousand bytes reach."""
    raw = kernel_text.data(proc / str(pid) / "cmdline", MOST_COMMAND_BYTES)
    return [Foreign(os.fsdecode(word)) for word in raw.rstrip(b"\0").split(b"\0")] if raw else []


def environ(pid: int, names: Sequence[str], proc: Path = PROC) -> dict[str, Foreign]:
    """Those of the variables that the process was started with; empty where they are not for us."""
    raw = kernel_text.data(proc / str(pid) / "environ") or b""
    wanted = rb"(?:\A|\0)(" + b"|".join(re.escape(name.encode()) for name in names) + rb")=([^\0]*)"
    found: dict[str, Foreign] = {}
    for name, value in re.findall(wanted, raw):
        found.setdefault(name.decode(), Foreign(os.fsdecode(value)))  # the first counts, as for the process
    return found


def pids(proc: Path = PROC) -> list[int]:
    """All processes, ascending."""
    return sorted(pid for entry in os.listdir(proc) if (pid := number(entry)) is not None)


def threads(pid: int, proc: Path = PROC) -> list[int]:
    """The threads of a process, ascending."""
    try:
        entries = os.listdir(proc / str(pid) / "task")
    except OSError:
        return []
    return sorted(tid for entry in entries if (tid := number(entry)) is not None)


def children(proc: Path = PROC) -> dict[int, list[int]]:
    """Of every process that has some, its children."""
    found: dict[int, list[int]] = {}
    for pid in pids(proc):
        seen = stat(pid, proc)
        if seen is not None:
            found.setdefault(seen.ppid, []).append(pid)
    return found


def descendants(pid: int, proc: Path = PROC, known: Mapping[int, list[int]] | None = None) -> list[int]:
    """Children, grandchildren and so on, parents before their children.

    Args:
        known: What `children` said a moment ago.
    """
    family = children(proc) if known is None else known
    order = list(family.get(pid, []))
    for each in order:
        order.extend(family.get(each, []))
    return order


def owner(pid: int, proc: Path = PROC) -> tuple[int, int] | None:
    """Effective uid and gid; None where the process is gone."""
    found = status(pid, proc)
    uid, gid = (number([*found.get(name, "").split(), "", ""][1]) for name in ("Uid", "Gid"))
    return None if uid is None or gid is None else (uid, gid)


def script(words: Sequence[Foreign]) -> Foreign | None:
    """What a Python command line runs: the script, or "-m module", or "-c"."""
    rest = iter([word.raw for word in words[1:]])
    for word in rest:
        if word in ("-m", "-c"):
            return Foreign(f"-m {next(rest, '')}" if word == "-m" else "-c")
        if word in ("-W", "-X", "--check-hash-based-pycs"):
            next(rest, None)
        elif not word.startswith("-"):
            return Foreign(word)
    return None
