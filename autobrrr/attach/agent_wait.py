"""Waiting for the agent after an injection, and saying meanwhile what the main thread does.

The injected call runs at the main thread's next Python instruction. A long native call (a step, a
compile) is waited out while the process or its children burn CPU. Where the main thread sleeps while
others work, the agent is loaded beside it; where nothing in the process makes progress, it is given up on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from autobrrr.attach.main_thread import BUSY_SHARE, Activity, Doing, describe, doing, observe
from autobrrr.errors import CannotAttach
from autobrrr.machine import procfs, same_program
from autobrrr.machine.kernel_text import number
from autobrrr.machine.same_program import Program

LOOK_S, RECENT_S = 0.05, 1.0
SAY_AFTER_S, SAY_EVERY_S = 2.0, 1.0
BESIDE_AFTER_S = 1.0
_COMING = "agent injected; waiting for it to start (it can't while torch is importing)"
ASLEEP_S = 3.5
AT_MOST_S = 30.0
_HINTS = {
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
            raise _held(pid, what, proc)
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


def _held(pid: int, what: Doing, proc: Path) -> CannotAttach:
    """It was stopped after the injection."""
    if what is Doing.STOPPED:
        return CannotAttach(
            f"process {pid} was stopped (job control) while it was being attached",
            f"kill -CONT {pid}, then try again",
        )
    tracer = number(procfs.status(pid, proc).get("TracerPid")) or 0
    seen = procfs.stat(tracer, proc)
    name = f"{seen.comm} (pid {tracer})" if seen is not None else "a debugger"
    return CannotAttach(f"{name} took process {pid} while it was being attached", "end it, then try again")


def _progress(earlier: Activity, now: Activity) -> bool:
    burnt_ns = (
        now.process_cpu_ns - earlier.process_cpu_ns + max(now.children_cpu_ns - earlier.children_cpu_ns, 0)
    )
    starved = now.state == "R"  # ready to run, whether or not others leave it a CPU
    return starved or burnt_ns >= BUSY_SHARE * (now.t_s - earlier.t_s) * 1e9 or _main_moved(earlier, now)


def _main_moved(earlier: Activity, now: Activity) -> bool:
    return now.main_cpu_ns > earlier.main_cpu_ns or now.main_switches > earlier.main_switches
