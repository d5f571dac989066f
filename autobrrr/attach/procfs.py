"""Processes as `/proc` shows them. Every function takes the root of proc, so that tests bring their own.

A process that is gone, or whose files are not for us, gives None or an empty value, never an error,
except where a docstring says so.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    """The fields of `/proc/PID/stat` that are used here."""

    comm: str
    state: str  # one letter: R, S, D, T, t, Z, X
    ppid: int
    cpu_ns: int  # user and system time of the process, or of the thread
    start_ticks: int  # since boot: with the pid it names a process for good


def stat(pid: int, proc: Path = PROC, tid: int | None = None) -> Stat | None:
    """State, parent, CPU time and start time of a process or of one of its threads."""
    folder = proc / str(pid) if tid is None else proc / str(pid) / "task" / str(tid)
    try:
        text = (folder / "stat").read_text(errors="replace")
    except OSError:
        return None
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    if len(fields) < 20:
        return None
    return Stat(
        comm=head.partition("(")[2],
        state=fields[0],
        ppid=int(fields[1]),
        cpu_ns=(int(fields[11]) + int(fields[12])) * 1_000_000_000 // _TICKS_PER_S,
        start_ticks=int(fields[19]),
    )


def status(pid: int, proc: Path = PROC, tid: int | None = None) -> dict[str, str]:
    """`/proc/PID/status` as a mapping; empty where it can't be read."""
    folder = proc / str(pid) if tid is None else proc / str(pid) / "task" / str(tid)
    try:
        lines = (folder / "status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def start_ticks(pid: int, proc: Path = PROC) -> int | None:
    """When the process started; None where there is none."""
    found = stat(pid, proc)
    return None if found is None else found.start_ticks


def cmdline(pid: int, proc: Path = PROC) -> list[str]:
    """The command, word by word."""
    try:
        raw = (proc / str(pid) / "cmdline").read_bytes()
    except OSError:
        return []
    return [word.decode(errors="replace") for word in raw.rstrip(b"\0").split(b"\0")] if raw else []


def environ(pid: int, proc: Path = PROC) -> dict[str, str]:
    """The environment that the process was started with; empty where it is not for us."""
    try:
        raw = (proc / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.decode(errors="replace").partition("=") for entry in raw.split(b"\0") if b"=" in entry)
    return {name: value for name, _, value in pairs}


def pids(proc: Path = PROC) -> list[int]:
    """All processes, ascending."""
    return sorted(int(entry) for entry in os.listdir(proc) if entry.isdigit())


def threads(pid: int, proc: Path = PROC) -> list[int]:
    """The threads of a process, ascending."""
    try:
        return sorted(int(entry) for entry in os.listdir(proc / str(pid) / "task"))
    except OSError:
        return []


def descendants(pid: int, proc: Path = PROC) -> list[int]:
    """Children, grandchildren and so on, parents before their children."""
    children: dict[int, list[int]] = {}
    for other in pids(proc):
        found = stat(other, proc)
        if found is not None:
            children.setdefault(found.ppid, []).append(other)
    order = list(children.get(pid, []))
    for each in order:
        order.extend(children.get(each, []))
    return order


def owner(pid: int, proc: Path = PROC) -> tuple[int, int] | None:
    """Effective uid and gid; None where the process is gone."""
    found = status(pid, proc)
    if "Uid" not in found or "Gid" not in found:
        return None
    return int(found["Uid"].split()[1]), int(found["Gid"].split()[1])


def script(words: list[str]) -> str | None:
    """What a Python command line runs: the script, or "-m module", or "-c"."""
    rest = iter(words[1:])
    for word in rest:
        if word in ("-m", "-c"):
            return f"-m {next(rest, '')}" if word == "-m" else "-c"
        if word in ("-W", "-X", "--check-hash-based-pycs"):
            next(rest, None)
        elif not word.startswith("-"):
            return word
    return None
