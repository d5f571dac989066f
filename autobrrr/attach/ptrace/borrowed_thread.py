"""The stop itself: borrow a thread for one call, put everything back, let go.

Which thread and which call is a `Way`'s business: see `pending_call` and `thread_start`.

Runs in a separate process (see `tracer`), with every signal blocked from its first instruction,
so that nothing that is sent to the attacher can end it half-way. A SIGKILL in the middle is the
one thing left: the kernel then lets the target go with borrowed registers. The window is the
stop, a fraction of a millisecond; all that can be prepared is prepared before it.
"""

from __future__ import annotations

import errno
import mmap
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from autobrrr.attach import load_failure
from autobrrr.attach.ptrace import deadly_calls, mapped_python, ptrace_calls
from autobrrr.attach.ptrace import x86_64 as cpu
from autobrrr.errors import CannotAttach, TargetGone
from autobrrr.machine import process_maps, procfs, same_program
from autobrrr.machine.same_program import Program

# A thread that stands in one of these may hold the lock that the call needs: see `_is_inside`.
MACHINERY = (
    mapped_python.ADD,
    "_PyEval_AddPendingCall",
    "Py_MakePendingCalls",
    "_PyEval_MakePendingCalls",
    "_Py_HandlePending",
)
READ_WRITE, PRIVATE = 3, 0x22  # PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS
CALL_S = 1.0  # it takes microseconds, once the thread has a CPU; called back half-way it may keep a lock
STOP_S = 6.0  # it needs a CPU to come to the stop
BACK_S = 120.0  # another thread may keep a system call waiting (it maps much); let go in it the job ends
BUSY_TRIES, BUSY_PAUSE_S = 5, 0.02
RETRY_FOR_S = 3.0
MOST_RETRY_PAUSES = 50  # between two tries; one more after each
_PERMISSION = {errno.EPERM, errno.EACCES}


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectionSite:
    """All that is known before the stop."""

    pid: int
    program: Program  # the one that all of this is true of
    add_pending: int
    run_string: int
    gadget: int  # a system call instruction in the target
    avoid: tuple[tuple[int, int], ...]  # ranges in which the call could deadlock
    any_thread: bool  # Python 3.13: the call also works from a thread that sleeps


@dataclass(slots=True)
class InjectedCall:
    """What came of it."""

    done: bool = False
    why: str = ""
    page: int = 0
    page_bytes: int = 0
    tid: int = 0
    tries: int = 0
    pause_ns: int = 0  # of all tries: from asking for the stop until detached, less waits for a CPU before it


class NotInTime(Exception):
    """A system call of the borrowed thread took too long; another try may find a better moment."""


def aim(pid: int, proc: Path = Path("/proc"), program: Program | None = None) -> InjectionSite:
    """Find everything in the target that the stop needs.

    Args:
        program: What it must still run when it is stopped; what it runs now where None.

    Raises:
        CannotAttach: no CPython with a C API.
        TargetGone: it ended.
    """
    program = program or same_program.seen(pid, proc)
    memory = open_memory(pid, proc)
    try:
        mapped = process_maps.read(pid, proc)
        _, found = mapped_python.find(pid, mapped, memory, (*MACHINERY, "_PyParkingLot_Park"), proc)
        vdso = next(m for m in mapped if m.path == "[vdso]")
        code = os.pread(memory, vdso.end - vdso.start, vdso.start)
    except (OSError, StopIteration):
        found, code = {}, b""
    finally:
        os.close(memory)
    if not found or cpu.SYSCALL_INSTRUCTION not in code:
        same_program.require(pid, program, proc)  # its memory goes with an exec
        raise CannotAttach(
            f"process {pid} is not CPython, or exports no C API (a frozen binary)",
            "start training with `autobrrr run -- ...`",
        )
    return InjectionSite(
        pid=pid,
        program=program,
        add_pending=found[mapped_python.ADD][0],
        run_string=found[mapped_python.RUN][0],
        gadget=vdso.start + code.index(cpu.SYSCALL_INSTRUCTION),
        avoid=tuple((start, start + size) for name, (start, size) in found.items() if name in MACHINERY),
        any_thread="_PyParkingLot_Park" in found,
    )


class Way(Protocol):
    """One way to have a borrowed thread do something."""

    @property
    def target(self) -> InjectionSite: ...

    @property
    def retry_pause_s(self) -> float:
        """How long to wait before the next try."""

    def choose_thread(self, tries: int, proc: Path) -> int:
        """The thread to borrow in the so many-th try, from 1."""

    def objection(self, registers: bytes, memory: int) -> str:
        """Why the thread must not be borrowed where it stands; "" where it may."""

    def call(self, thread: ptrace_calls.Tracee, memory: int, state: InjectedCall) -> None:
        """Make the call; sets `state.done`, or `state.why`."""


def sleeping_beside(pid: int, proc: Path) -> list[int]:
    """Threads other than the main one that sleep, ascending."""
    seen = ((tid, procfs.stat(pid, proc, tid)) for tid in procfs.threads(pid, proc) if tid != pid)
    return [tid for tid, found in seen if found is not None and found.state == "S"]


def pages_for(count: int) -> int:
    """So many bytes, in whole pages."""
    return -(-count // mmap.PAGESIZE) * mmap.PAGESIZE


def system_call(
    target: InjectionSite,
    thread: ptrace_calls.Tracee,
    registers: bytes,
    call: tuple[int, tuple[int, ...]],
    timeout_s: float = CALL_S,
) -> int:
    """Have the borrowed thread make one system call.

    Args:
        call: Its number and arguments.

    Raises:
        CannotAttach: it was refused, to the target and not to us.
        NotInTime: it did not return.
    """
    thread.set_registers(cpu.for_syscall(registers, target.gadget, *call))
    if not thread.step(timeout_s):
        raise NotInTime
    result = int(cpu.result(thread.registers()))
    if -4096 < result < 0:
        why = load_failure.Complaint(
            part=load_failure.Part.PAGE, kind="OSError", number=-result, text=os.strerror(-result)
        )
        raise load_failure.error_of(why, target.pid)
    return result


def strike(way: Way, proc: Path = Path("/proc")) -> InjectedCall:
    """Go that way; retries where the moment is bad.

    Raises:
        CannotAttach: somebody else traces the target, it is stopped, or no try worked.
        TargetGone: it ended.
    """
    target, state = way.target, InjectedCall()
    busy, end = 0, time.monotonic() + RETRY_FOR_S
    tid = target.pid
    memory = open_memory(target.pid, proc)
    try:
        while not state.done and time.monotonic() < end:
            state.tries += 1
            try:
                tid = way.choose_thread(state.tries, proc)
                _once(way, tid, memory, state)
            except (ptrace_calls.Exited, ProcessLookupError, FileNotFoundError):
                if not (proc / str(target.pid)).exists() or tid == target.pid:
                    raise TargetGone(f"process {target.pid} ended while it was being attached") from None
            except ptrace_calls.JobStopped:
                raise CannotAttach(
                    f"process {target.pid} is stopped (job control)",
                    f"kill -CONT {target.pid}, then try again",
                ) from None
            except NotInTime:
                state.why = "a system call of its thread took too long each time"
            except OSError as error:
                if error.errno not in _PERMISSION:
                    raise CannotAttach(f"process {target.pid} could not be borrowed: {error}") from None
                busy += 1
                if busy >= BUSY_TRIES:
                    raise CannotAttach(
                        f"process {target.pid} may not be traced: {error.strerror}",
                        f"autobrrr doctor {target.pid} says what is in the way",
                    ) from None
                time.sleep(BUSY_PAUSE_S)
            if not state.done:
                time.sleep(way.retry_pause_s * min(state.tries, MOST_RETRY_PAUSES))  # each try is a stop
    finally:
        os.close(memory)
    if not state.done:
        raise CannotAttach(
            f"process {target.pid} took no call in {state.tries} tries: {state.why}", "try again"
        )
    return state


def _once(way: Way, tid: int, memory: int, state: InjectedCall) -> None:
    """One stop. Whatever happens in it, the thread leaves as it came."""
    thread = ptrace_calls.Tracee(tid, cpu.registers_bytes())
    began_ns, delay_ns = time.monotonic_ns(), procfs.run_delay_ns(way.target.pid, tid)
    thread.interrupt()
    try:
        came = thread.wait_interrupted(STOP_S)
    except ptrace_calls.JobStopped:
        thread.detach()  # the kernel puts the job's stop back
        raise
    if not came:
        # It can't be let go while it runs; this process's end does that, and nothing was changed.
        raise CannotAttach(
            f"thread {tid} of process {way.target.pid} did not stop within {STOP_S:.0f} s: it waits in the "
            "kernel (disk or network storage), or gets no CPU",
            "try again when the job trains",
        )
    try:
        # On its way to the stop others may have its CPU for a tenth of a second: that is no pause of ours.
        delayed_ns = (procfs.run_delay_ns(way.target.pid, tid) or 0) - (delay_ns or 0)
        began_ns += min(delayed_ns, time.monotonic_ns() - began_ns)
        # Stopped it stays what it is. It may have become a program of root's that the job has aimed us at.
        same_program.require(way.target.pid, way.target.program)
        if procfs.stat(way.target.pid, tid=tid) is None:
            raise ProcessLookupError  # that thread has ended, and another process has its number
        deadly = deadly_calls.deadly(tid)
        if deadly:
            raise CannotAttach(
                f"the seccomp filter of process {way.target.pid} kills it for {', '.join(deadly)}",
                "allow that in its profile (systemd: SystemCallFilter=, SystemCallErrorNumber=EPERM), or"
                f" watch from outside: autobrrr attach --outside {way.target.pid}",
            )
        registers, mask = thread.registers(), thread.signal_mask()
        objection = way.objection(registers, memory)
        if objection:
            state.why = objection
            return
        extended = [(note, thread.extended(note)) for note in cpu.EXTENDED_NOTES]
        try:
            thread.set_signal_mask()
            way.call(thread, memory, state)
        finally:
            _restore(thread, registers, extended, mask)
    finally:
        if thread.stopped:
            thread.detach()
        state.pause_ns += time.monotonic_ns() - began_ns
        for number in thread.held_back:
            signal.pidfd_send_signal(os.pidfd_open(way.target.pid), number)
    state.tid = tid


def _restore(
    thread: ptrace_calls.Tracee, registers: bytes, extended: list[tuple[int, bytes]], mask: bytes
) -> None:
    if not thread.stopped:
        thread.interrupt()
        if not thread.wait_interrupted(BACK_S, keep_signals=True):
            raise OSError("the borrowed thread did not come back")
    for note, saved in extended:
        thread.set_extended(note, saved)
    # With the original system call number in them: the kernel restarts the interrupted call.
    thread.set_registers(registers)
    thread.set_signal_mask(mask)


def open_memory(pid: int, proc: Path) -> int:
    """A descriptor of a process's memory. Raises CannotAttach, TargetGone."""
    try:
        return os.open(proc / str(pid) / "mem", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        raise TargetGone(f"process {pid} ended") from None
    except OSError as error:
        raise CannotAttach(
            f"process {pid} may not be traced: {error.strerror}", f"autobrrr doctor {pid}"
        ) from None
