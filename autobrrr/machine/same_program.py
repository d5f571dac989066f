"""Whether a process still runs the program that was looked at: an exec may have given it more rights."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from autobrrr.errors import TargetGone
from autobrrr.machine import kernel_text, procfs


class Program(NamedTuple):
    """A program that a process runs, and for whom."""

    start_ticks: int  # tells the process from another with the same pid
    stack_start: int  # tells its program from another that it has become since; 0: not told
    uid: int
    gid: int
    capabilities: int = 0


def seen(pid: int, proc: Path = procfs.PROC) -> Program:
    """What a process runs now.

    Raises:
        TargetGone: it ended.
    """
    found, owner = procfs.stat(pid, proc), procfs.owner(pid, proc)
    if found is None or owner is None or found.state in "ZX":
        raise TargetGone(f"process {pid} ended while it was being attached")
    capabilities = kernel_text.number(procfs.status(pid, proc).get("CapPrm"), 16) or 0
    return Program(found.start_ticks, found.stack_start, *owner, capabilities)


def require(pid: int, program: Program, proc: Path = procfs.PROC) -> None:
    """Raise `TargetGone` where what was to be entered is no more."""
    now = seen(pid, proc)
    if now.start_ticks != program.start_ticks:
        raise TargetGone(f"process {pid} ended while it was being attached")
    if 0 in (now.stack_start, program.stack_start):
        program = program._replace(stack_start=now.stack_start)
    if now != program:
        raise TargetGone(
            f"process {pid} started another program in its place (exec) while it was being attached",
            "try again when that trains",
        )
