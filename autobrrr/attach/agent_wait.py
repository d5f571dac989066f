"""Waiting for the agent after an injection, and saying meanwhile what the main thread does.

The injected call runs at the main thread's next Python instruction. A long native call (a step, a
compile) is waited out while the process or its children burn CPU. Where the main thread sleeps while
others work, the agent is loaded beside it; where nothing in the process makes progress, it is given up on.

What the main thread does is seen in `/proc`; nothing is stopped. A look is only ever described as what was
seen: which system call it sleeps in, on which file, how much CPU it burnt.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from autobrrr.errors import CannotAttach
from autobrrr.machine import kernel_text, procfs, same_program
from autobrrr.machine.kernel_text import number
from autobrrr.machine.same_program import Program
from autobrrr.quantities import share as percent
from autobrrr.readable import Foreign

LOOK_S, RECENT_S = 0.05, 1.0
SAY_AFTER_S, SAY_EVERY_S = 2.0, 1.0
BESIDE_AFTER_S = 1.0
_COMING = "agent injected; waiting for it to start (it can't while torch is importing)"
ASLEEP_S = 3.5
AT_MOST_S = 30.0
BUSY_SHARE = 0.05  # of one core


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


_HINTS = {
    Doing.STOPPED: "kill -CONT it, then try again",
    Doing.TRACED: "end the debugger, then try again",
    Doing.PROMPT: "answer the prompt (`continue` in pdb), then try again",
    Doing.STUCK: "try again when its storage answers",
}


def for_agent(
    pid: int,
    arrived: Callable[[float], bool],
    taken: Callable[[], bool],
    *,
    program: Program,
    go_beside: Callable[[], str] = lambda: "",
    on_wait: Callable[[str], object] | None = None,
    proc: Path = procfs.PROC,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Wait until the agent is there.

    Args:
        arrived: Waits up to so many seconds; True when the agent has come.
        taken: Whether the main thread has run the call: what is said of it holds only until then.
        program: What the process must still run.
        go_beside: Loads the agent without the main thread; why that is not possible, or "". Called once,
            when the main thread has slept for a second while others work.
        on_wait: Takes a line about what is waited for, about once a second after two seconds.

    Raises:
        CannotAttach: it is stopped, nothing in it makes progress, or 30 s have passed.
        TargetGone: it ended meanwhile, or became another program.
    """
    began_s = clock()
    moved_s = main_moved_s = began_s  # when progress was last seen, of any thread and of the main one
    earlier: Activity | None = None
    beside: str | None = None  # why the agent could not be loaded without the main thread; None: not tried
    looks: deque[Activity] = deque()  # of the last second: what it did before that, it may do no more
    said_s = began_s + SAY_AFTER_S - SAY_EVERY_S
    while not arrived(LOOK_S):
        now = observe(pid, proc, clock)
        same_program.require(pid, program, proc)
        if now is None:
            continue  # it is just ending: the next look sees that
        earlier = earlier or now
        looks.append(now)
        while now.t_s - looks[0].t_s > RECENT_S:
            looks.popleft()
        if now.t_s - earlier.t_s >= 0.5:
            moved_s = now.t_s if _progress(earlier, now) else moved_s
            main_moved_s = now.t_s if _main_moved(earlier, now) else main_moved_s
            earlier = now
            slept = now.t_s - main_moved_s >= BESIDE_AFTER_S
            if beside is None and slept and moved_s == now.t_s and not taken():
                beside = go_beside()
                continue
        passed_s, came = now.t_s - began_s, taken()
        what, words = doing(looks[0], now), _COMING if came else describe(looks[0], now)
        if what in (Doing.STOPPED, Doing.TRACED):
            raise CannotAttach(f"process {pid} {what.value}, while it was being attached", _HINTS[what])
        if (asleep := now.t_s - moved_s >= ASLEEP_S) or passed_s >= AT_MOST_S:
            more, hint = "", f"try again later, or watch from outside: autobrrr attach --outside {pid}"
            if asleep:
                more = ", and nothing in it makes progress"
            elif beside:
                more, hint = (
                    f", and {beside}",
                    "start training in the main thread, or with `autobrrr run -- ...`",
                )
            raise CannotAttach(
                f"process {pid} did not admit the agent within {passed_s:.0f} s: {words}{more}",
                _HINTS.get(what, hint),
            )
        if on_wait is not None and passed_s >= SAY_AFTER_S and now.t_s - said_s >= SAY_EVERY_S:
            said_s = now.t_s
            on_wait(f"waiting for process {pid}, {passed_s:.0f} s: {words}")


def _progress(earlier: Activity, now: Activity) -> bool:
    burnt_ns = (
        now.process_cpu_ns - earlier.process_cpu_ns + max(now.children_cpu_ns - earlier.children_cpu_ns, 0)
    )
    starved = now.state == "R"  # ready to run, whether or not others leave it a CPU
    return starved or burnt_ns >= BUSY_SHARE * (now.t_s - earlier.t_s) * 1e9 or _main_moved(earlier, now)


def _main_moved(earlier: Activity, now: Activity) -> bool:
    return now.main_cpu_ns > earlier.main_cpu_ns or now.main_switches > earlier.main_switches


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
    found = kernel_text.link(proc / str(pid) / "fd" / str(call.first))
    return None if found is None else Foreign(found)
