"""Waiting for the agent after an injection, and saying meanwhile what the main thread does.

The injected call runs at the main thread's next Python instruction. A long native call (a step, a
compile) is waited out while the process or its children burn CPU. Where the main thread sleeps while
others work, the agent is loaded beside it; where nothing in the process makes progress, it is given up on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from autobrrr import kernel_text
from autobrrr.attach import procfs
from autobrrr.errors import CannotAttach, TargetGone
from autobrrr.kernel_text import number

LOOK_S = 0.05
SAY_AFTER_S, SAY_EVERY_S = 2.0, 1.0
BESIDE_AFTER_S = 1.0
ASLEEP_S = 3.5
OTHER_THREAD_S = 8.0
AT_MOST_S = 30.0
BUSY_SHARE = 0.05

_CALLS = {  # x86-64 numbers
    0: "read",
    7: "poll",
    23: "select",
    34: "pause",
    35: "nanosleep",
    45: "recvfrom",
    47: "recvmsg",
    61: "wait4",
    202: "futex",
    230: "clock_nanosleep",
    232: "epoll_wait",
    247: "waitid",
    270: "pselect6",
    271: "ppoll",
    281: "epoll_pwait",
}
_MEANINGS = {
    "futex": "for a lock, a thread or a queue",
    "wait4": "for a child process",
    "waitid": "for a child process",
    "clock_nanosleep": "in a sleep",
    "nanosleep": "in a sleep",
    "pause": "for a signal",
    "poll": "for a file or connection",
    "ppoll": "for a file or connection",
    "select": "for a file or connection",
    "pselect6": "for a file or connection",
    "epoll_wait": "for a connection",
    "epoll_pwait": "for a connection",
    "read": "for input",
    "recvfrom": "for a connection",
    "recvmsg": "for a connection",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What a process was at, at one moment; CPU times are totals since its start."""

    t_s: float
    state: str  # of the main thread
    call: str | None  # the system call it sleeps in
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
    switches = number(procfs.status(pid, proc, tid=pid).get("voluntary_ctxt_switches")) or 0
    return Activity(
        t_s=clock(),
        state=main.state,
        call=_system_call(pid, proc),
        main_cpu_ns=main.cpu_ns,
        main_switches=switches,
        process_cpu_ns=whole.cpu_ns,
        children_cpu_ns=sum(child.cpu_ns for child in children if child is not None),
    )


def describe(first: Activity, last: Activity) -> str:
    """One clause about the main thread, with figures."""
    passed_s = max(last.t_s - first.t_s, 1e-9)
    share = (last.main_cpu_ns - first.main_cpu_ns) / (passed_s * 1e9)
    if last.state == "D":
        return "its main thread is in an uninterruptible wait of the kernel"
    if share >= BUSY_SHARE:
        return f"its main thread runs native code ({share:.0%} of a core) and has not come back to Python"
    call = last.call or "the kernel"
    meaning = _MEANINGS.get(call, "")
    return f"its main thread waits {meaning} ({call})" if meaning else f"its main thread waits in {call}"


def for_agent(
    pid: int,
    arrived: Callable[[float], bool],
    *,
    start_ticks: int,
    go_beside: Callable[[], str] = lambda: "",
    on_wait: Callable[[str], object] | None = None,
    proc: Path = procfs.PROC,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Wait until the agent is there.

    Args:
        arrived: Waits up to so many seconds; True when the agent has come.
        start_ticks: Tells the process from another with the same pid.
        go_beside: Loads the agent without the main thread; why that is not possible, or "". Called once,
            when the main thread has slept for a second while others work.
        on_wait: Takes a line about what is waited for, about once a second after two seconds.

    Raises:
        CannotAttach: its main thread sleeps without progress, or 30 s have passed.
        TargetGone: it ended meanwhile.
    """
    began_s = clock()
    first: Activity | None = None
    moved_s = began_s  # when progress was last seen
    main_moved_s = began_s
    earlier: Activity | None = None
    beside: str | None = None  # why the agent could not be loaded without the main thread; None: not tried
    said_s = began_s + SAY_AFTER_S - SAY_EVERY_S
    while not arrived(LOOK_S):
        now = observe(pid, proc, clock)
        if now is None or procfs.start_ticks(pid, proc) != start_ticks:
            raise TargetGone(f"process {pid} ended while it was being attached")
        first = first or now
        earlier = earlier or now
        if now.t_s - earlier.t_s >= 0.5:
            moved_s = now.t_s if _progress(earlier, now) else moved_s
            main_moved_s = now.t_s if _main_moved(earlier, now) else main_moved_s
            earlier = now
            if beside is None and now.t_s - main_moved_s >= BESIDE_AFTER_S and moved_s == now.t_s:
                beside = go_beside()
                continue
        passed_s = now.t_s - began_s
        doing = describe(first, now)
        if now.t_s - moved_s >= ASLEEP_S:
            raise CannotAttach(
                f"process {pid} took the call but did not run it within {passed_s:.0f} s: {doing}, "
                "and nothing in it makes progress",
                "try again when it trains",
            )
        if beside and now.t_s - main_moved_s >= OTHER_THREAD_S and _others_train(first, now):
            raise CannotAttach(
                f"process {pid} trains in another thread while {doing}, and {beside}",
                "start training in the main thread, or with `autobrrr run -- ...`",
            )
        if passed_s >= AT_MOST_S:
            raise CannotAttach(
                f"process {pid} did not come back to Python within {passed_s:.0f} s: {doing}",
                "try again later, or start training with `autobrrr run -- ...`",
            )
        if on_wait is not None and passed_s >= SAY_AFTER_S and now.t_s - said_s >= SAY_EVERY_S:
            said_s = now.t_s
            on_wait(f"waiting for process {pid}, {passed_s:.0f} s: {doing}")


def _progress(earlier: Activity, now: Activity) -> bool:
    burnt_ns = (
        now.process_cpu_ns - earlier.process_cpu_ns + max(now.children_cpu_ns - earlier.children_cpu_ns, 0)
    )
    return burnt_ns >= BUSY_SHARE * (now.t_s - earlier.t_s) * 1e9 or _main_moved(earlier, now)


def _main_moved(earlier: Activity, now: Activity) -> bool:
    return now.main_cpu_ns > earlier.main_cpu_ns or now.main_switches > earlier.main_switches


def _others_train(first: Activity, now: Activity) -> bool:
    """Threads of the process itself burn CPU, and the main thread none of it."""
    burnt_ns = (now.process_cpu_ns - first.process_cpu_ns) - (now.main_cpu_ns - first.main_cpu_ns)
    return burnt_ns >= BUSY_SHARE * (now.t_s - first.t_s) * 1e9


def _system_call(pid: int, proc: Path) -> str | None:
    word = (kernel_text.text(proc / str(pid) / "syscall", 256) or "").split(" ", 1)[0].strip()
    call = number(word)
    return None if call is None or call < 0 else _CALLS.get(call, f"system call {call}")
