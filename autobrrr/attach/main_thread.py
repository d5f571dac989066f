"""What the main thread of a process does, as `/proc` shows it: one look, and a clause made of two.

Nothing is stopped. A look is only ever described as what was seen: which system call it sleeps in, on
which file, how much CPU it burnt.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from autobrrr.machine import kernel_text, procfs
from autobrrr.machine.kernel_text import number
from autobrrr.quantities import share as percent
from autobrrr.readable import Foreign

BUSY_SHARE = 0.05


class Doing(Enum):
    """What is done about a thread depends on this alone."""

    RUNS = "runs"
    STOPPED = "is stopped (job control)"
    TRACED = "is held by a debugger"
    STUCK = "is in an uninterruptible wait of the kernel"
    READY = "is ready to run, and other programs have the CPUs"
    PROMPT = "waits for its standard input, as at a prompt"
    WAITS = "waits"


_MEANINGS = {  # of x86-64 system calls
    "for input": (0, 17, 19),
    "to write": (1, 20, 44, 46),
    "for a file or connection": (7, 23, 42, 43, 45, 47, 232, 257, 270, 271, 281, 288),
    "in a sleep": (35, 219, 230),  # 219 is what our stop makes of a call with a time limit
    "for a signal": (34, 128, 130),
    "for a child process": (61, 247),
    "for the lock of a file": (72, 73),
    "for a disk": (74, 208),
    "for a lock, a thread or a queue": (202,),
}
_READS, _SELECTS = (0, 19), (23, 270)


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemCall:
    """One that a thread sleeps in."""

    number: int
    first: int  # its first argument


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What a process was at, at one moment; CPU times are totals since its start."""

    t_s: float
    state: str  # of the main thread
    call: SystemCall | None  # that it sleeps in
    file: Foreign | None  # that the call reads
    main_cpu_ns: int
    main_switches: int  # times that the main thread went to sleep by itself
    process_cpu_ns: int
    children_cpu_ns: int


def observe(
    pid: int, proc: Path = procfs.PROC, clock: Callable[[], float] = time.monotonic
) -> Activity | None:
    """Look at a process; None where it is gone."""
    whole, main = procfs.stat(pid, proc), procfs.stat(pid, proc, tid=pid)
    if whole is None or main is None or whole.state in "ZX":
        return None
    children = (procfs.stat(child, proc) for child in procfs.descendants(pid, proc))
    call = _system_call(pid, proc)
    return Activity(
        t_s=clock(),
        state=main.state,
        call=call,
        file=_file(pid, call, proc),
        main_cpu_ns=main.cpu_ns,
        main_switches=number(procfs.status(pid, proc, tid=pid).get("voluntary_ctxt_switches")) or 0,
        process_cpu_ns=whole.cpu_ns,
        children_cpu_ns=sum(child.cpu_ns for child in children if child is not None),
    )


def doing(first: Activity, last: Activity) -> Doing:
    """What the main thread did from one look to another."""
    if last.state in "TtD":
        return {"T": Doing.STOPPED, "t": Doing.TRACED, "D": Doing.STUCK}[last.state]
    if last.main_cpu_ns - first.main_cpu_ns >= BUSY_SHARE * _passed_ns(first, last):
        return Doing.RUNS
    seen = _asleep(first, last)
    if seen.state == "R":
        return Doing.READY
    return Doing.PROMPT if _is_prompt(seen) else Doing.WAITS


def describe(first: Activity, last: Activity) -> str:
    """One clause about the main thread, with figures; true of a thread that has not come back to Python."""
    what, seen = doing(first, last), _asleep(first, last)
    clause = f"its main thread {what.value}"
    if what is Doing.RUNS:
        share = min(1.0, (last.main_cpu_ns - first.main_cpu_ns) / _passed_ns(first, last))  # ticks of 10 ms
        return f"{clause} ({percent(share)} of a core) and has not come back to Python"
    if what is not Doing.WAITS:
        return clause
    if seen.call is None:
        return f"{clause} in the kernel"
    meaning = next((words for words, calls in _MEANINGS.items() if seen.call.number in calls), None)
    name = f"system call {seen.call.number}"
    of_file = f" of {seen.file}" if seen.file else ""
    return f"{clause} in {name}{of_file}" if meaning is None else f"{clause} {meaning} ({name}{of_file})"


def _passed_ns(first: Activity, last: Activity) -> float:
    return max(last.t_s - first.t_s, 1e-9) * 1e9


def _asleep(first: Activity, last: Activity) -> Activity:
    """The later look; where it met a sleeper that had just been woken, the earlier."""
    return first if last.state == "R" and first.state != "R" else last


def _is_prompt(last: Activity) -> bool:
    """A read of standard input or of a terminal; a `select` of one descriptor can only be of the first."""
    if last.call is None:
        return False
    if last.call.number in _SELECTS:
        return last.call.first == 1
    terminal = last.file is not None and last.file.raw.startswith(("/dev/pts/", "/dev/tty", "/dev/console"))
    return last.call.number in _READS and (last.call.first == 0 or terminal)


def _system_call(pid: int, proc: Path) -> SystemCall | None:
    words = (kernel_text.text(proc / str(pid) / "syscall", 256) or "").split(" ")
    call = number(words[0])
    first = number(words[1].removeprefix("0x"), 16) if len(words) > 1 else None
    return None if call is None or call < 0 or first is None else SystemCall(number=call, first=first)


def _file(pid: int, call: SystemCall | None, proc: Path) -> Foreign | None:
    if call is None or call.number not in _READS:
        return None
    try:
        return Foreign(os.readlink(proc / str(pid) / "fd" / str(call.first)))
    except OSError:
        return None
