"""What the main thread of a process does, as `/proc` shows it: one look, and a clause made of two.

Nothing is stopped. A look is only ever described as what was seen: which system call it sleeps in, on
which file, whose lock it waits for, how much CPU it burnt and where.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path

from autobrrr.attach.ptrace import mapped_python
from autobrrr.machine import kernel_text, process_maps, procfs
from autobrrr.machine.kernel_text import number
from autobrrr.quantities import share as percent
from autobrrr.readable import Foreign

BUSY_SHARE = 0.05


class Doing(Enum):
    """What is done about a thread depends on this alone."""

    NATIVE = "runs native code"
    KERNEL = "runs in the kernel"
    STOPPED = "is stopped"
    TRACED = "is held by a debugger"
    STUCK = "is in an uninterruptible wait"
    READY = "is ready to run and gets no CPU"
    PROMPT = "waits for standard input"
    INTERPRETER = "waits for the interpreter lock"
    WAITS = "sleeps in a system call"


_CALLS = {  # x86-64 numbers
    0: ("read", "for input"),
    1: ("write", "to write"),
    7: ("poll", "for a file or connection"),
    17: ("pread64", "for a file"),
    20: ("writev", "to write"),
    23: ("select", "for a file or connection"),
    34: ("pause", "for a signal"),
    35: ("nanosleep", "in a sleep"),
    42: ("connect", "for a connection"),
    43: ("accept", "for a connection"),
    44: ("sendto", "to send"),
    45: ("recvfrom", "for a connection"),
    46: ("sendmsg", "to send"),
    47: ("recvmsg", "for a connection"),
    61: ("wait4", "for a child process"),
    72: ("fcntl", "for the lock of a file"),
    73: ("flock", "for the lock of a file"),
    74: ("fsync", "for a disk"),
    128: ("rt_sigtimedwait", "for a signal"),
    130: ("rt_sigsuspend", "for a signal"),
    202: ("futex", "for a lock, a thread or a queue"),
    208: ("io_getevents", "for a disk"),
    219: ("restart_syscall", "in a call with a time limit"),  # what our stop has made of it
    230: ("clock_nanosleep", "in a sleep"),
    232: ("epoll_wait", "for a connection"),
    247: ("waitid", "for a child process"),
    257: ("openat", "for a file to open"),
    270: ("pselect6", "for a file or connection"),
    271: ("ppoll", "for a file or connection"),
    281: ("epoll_pwait", "for a connection"),
    288: ("accept4", "for a connection"),
}
_READ, _READV, _SELECTS, _FUTEX = 0, 19, (23, 270), 202


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
    on_interpreter: bool  # it waits for a lock inside the interpreter's own state
    where: str | None  # the kernel's function, where it says so
    main_cpu_ns: int
    main_kernel_ns: int
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
    switches = number(procfs.status(pid, proc, tid=pid).get("voluntary_ctxt_switches")) or 0
    call = _system_call(pid, proc)
    return Activity(
        t_s=clock(),
        state=main.state,
        call=call,
        file=_file(pid, call, proc),
        on_interpreter=call is not None
        and call.number == _FUTEX
        and any(start <= call.first < end for start, end in _interpreter_state(pid, whole.start_ticks, proc)),
        where=_where(pid, proc),
        main_cpu_ns=main.cpu_ns,
        main_kernel_ns=main.kernel_ns,
        main_switches=switches,
        process_cpu_ns=whole.cpu_ns,
        children_cpu_ns=sum(child.cpu_ns for child in children if child is not None),
    )


def doing(first: Activity, last: Activity) -> Doing:
    """What the main thread did from one look to another."""
    if last.state in "Tt":
        return Doing.STOPPED if last.state == "T" else Doing.TRACED
    if last.state == "D":
        return Doing.STUCK
    burnt_ns = last.main_cpu_ns - first.main_cpu_ns
    if burnt_ns >= BUSY_SHARE * max(last.t_s - first.t_s, 1e-9) * 1e9:
        in_kernel = 2 * (last.main_kernel_ns - first.main_kernel_ns) > burnt_ns
        return Doing.KERNEL if in_kernel else Doing.NATIVE
    seen = _asleep(first, last)
    if seen.state == "R":
        return Doing.READY
    if seen.on_interpreter:
        return Doing.INTERPRETER
    return Doing.PROMPT if _is_prompt(seen) else Doing.WAITS


def describe(first: Activity, last: Activity) -> str:
    """One clause about the main thread, with figures; true of a thread that has not come back to Python."""
    what, seen = doing(first, last), _asleep(first, last)
    call = _called(seen)
    passed_ns = max(last.t_s - first.t_s, 1e-9) * 1e9
    share = min(1.0, (last.main_cpu_ns - first.main_cpu_ns) / passed_ns)  # counted in ticks of 10 ms
    others = (last.process_cpu_ns - first.process_cpu_ns) / passed_ns - share
    where = f" ({seen.where})" if seen.where else ""
    if what is Doing.NATIVE:
        return (
            f"its main thread runs native code ({percent(share)} of a core) and has not come back to Python"
        )
    if what is Doing.KERNEL:
        return (
            f"its main thread is in the kernel ({percent(share)} of a core) and has not come back to Python"
        )
    if what is Doing.STOPPED:
        return "it is stopped (job control)"
    if what is Doing.TRACED:
        return "a debugger holds it"
    if what is Doing.STUCK:
        return f"its main thread is in an uninterruptible wait of the kernel{where}"
    if what is Doing.READY:
        return "its main thread is ready to run, and other programs have the CPUs"
    if what is Doing.INTERPRETER:
        return (
            "its main thread waits for Python's interpreter lock, "
            f"while its other threads run ({percent(max(others, 0))} of a core)"
        )
    if what is Doing.PROMPT:
        return f"its main thread waits for its standard input, as at a prompt ({call[0]})"
    return (
        f"its main thread waits {call[1]} ({call[0]})" if call[1] else f"its main thread waits in {call[0]}"
    )


def _asleep(first: Activity, last: Activity) -> Activity:
    """The later look; where it met a sleeper that had just been woken, the earlier."""
    return first if last.state == "R" and first.state != "R" else last


def _called(last: Activity) -> tuple[str, str]:
    """Name and meaning of the system call."""
    if last.call is None:
        return last.where or "the kernel", ""
    name, meaning = _CALLS.get(last.call.number, (f"system call {last.call.number}", ""))
    return (f"{name} of {last.file}" if last.file else name), meaning


def _is_prompt(last: Activity) -> bool:
    """A read of standard input or of a terminal; a `select` of one descriptor can only be of the first."""
    if last.call is None:
        return False
    if last.call.number in _SELECTS:
        return last.call.first == 1
    terminal = last.file is not None and last.file.raw.startswith(("/dev/pts/", "/dev/tty", "/dev/console"))
    return last.call.number in (_READ, _READV) and (last.call.first == 0 or terminal)


def _system_call(pid: int, proc: Path) -> SystemCall | None:
    words = (kernel_text.text(proc / str(pid) / "syscall", 256) or "").split(" ")
    call = number(words[0])
    first = number(words[1].removeprefix("0x"), 16) if len(words) > 1 else None
    return None if call is None or call < 0 or first is None else SystemCall(number=call, first=first)


def _file(pid: int, call: SystemCall | None, proc: Path) -> Foreign | None:
    if call is None or call.number not in (_READ, _READV):
        return None
    try:
        return Foreign(os.readlink(proc / str(pid) / "fd" / str(call.first)))
    except OSError:
        return None


def _where(pid: int, proc: Path) -> str | None:
    name = (kernel_text.text(proc / str(pid) / "wchan", 256) or "").strip()
    return name if name not in ("", "0") else None


@lru_cache(maxsize=8)
def _interpreter_state(pid: int, start_ticks: int, proc: Path) -> tuple[tuple[int, int], ...]:
    """Where `_PyRuntime` lies in a process: its own locks are in it, the script's are not."""
    try:
        found = mapped_python.symbols(
            pid, process_maps.read(pid, proc), (mapped_python.RUN, "_PyRuntime"), proc
        )
    except OSError:
        return ()
    start, size = found.get("_PyRuntime", (0, 0))
    return ((start, start + size),)
