"""The stop itself: borrow a thread for one `Py_AddPendingCall`, put everything back, let go.

Runs in a process of its own (see `inject`), with every signal blocked from its first instruction,
so that nothing that is sent to the attacher can end it half-way. A SIGKILL in the middle is the
one thing left: the kernel then lets the target go with borrowed registers. The window is the
stop, a fraction of a millisecond; all that can be prepared is prepared before it.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import mmap
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from autobrrr import kernel_text
from autobrrr.attach import interpreter, maps, ptrace, x86_64
from autobrrr.errors import AutobrrrError, CannotAttach, TargetGone

ARCHITECTURES: dict[str, ModuleType] = {"x86_64": x86_64}

# A thread that stands in one of these may hold the lock that the call needs: see `_is_inside`.
MACHINERY = (
    interpreter.ADD,
    "_PyEval_AddPendingCall",
    "Py_MakePendingCalls",
    "_PyEval_MakePendingCalls",
    "_Py_HandlePending",
)
# Replaced in the code by the address and size of its memory; 18 letters, as "0x" and 16 digits.
PAGE_WORD, PAGE_BYTES_WORD = b"0xAUTOBRRRPAGEADDR", b"0xAUTOBRRRPAGESIZE"
SOURCE_AT = 64  # the call returns to the page's start, which can't be executed: a fault ends it
STACK_WORDS = 200
CALL_S = 0.05
STOP_S = 1.0
BUSY_TRIES, BUSY_PAUSE_S = 5, 0.02
RETRY_FOR_S, RETRY_PAUSE_S = 3.0, 0.001
_PERMISSION = {errno.EPERM, errno.EACCES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """All that is known before the stop."""

    pid: int
    architecture: ModuleType
    add_pending: int
    run_string: int
    gadget: int  # a system call instruction in the target
    avoid: tuple[tuple[int, int], ...]  # ranges in which the call could deadlock
    any_thread: bool  # Python 3.13: the call also works from a thread that sleeps


@dataclass(slots=True)
class Strike:
    """What came of it."""

    done: bool = False
    why: str = ""
    page: int = 0
    page_bytes: int = 0
    tid: int = 0
    tries: int = 0
    pause_ns: int = 0  # of the try that worked: from asking for the stop until detached
    longest_pause_ns: int = 0


def aim(pid: int, proc: Path = Path("/proc")) -> Aim:
    """Find everything in the target that the stop needs.

    Raises:
        CannotAttach: no CPython with a C API, or an architecture without a file here.
        TargetGone: it ended.
    """
    architecture = ARCHITECTURES.get(os.uname().machine)
    if architecture is None:
        raise CannotAttach(
            f"attaching works on {', '.join(ARCHITECTURES)} only; this machine is {os.uname().machine}",
            "start training with `autobrrr run -- ...`",
        )
    try:
        mapped = maps.read(pid, proc)
        found = interpreter.symbols(pid, mapped, (*MACHINERY, interpreter.RUN, "_PyParkingLot_Park"), proc)
        vdso = next((m for m in mapped if m.path == "[vdso]"), None)
        if not found.keys() >= interpreter.API or vdso is None:
            raise CannotAttach(
                f"process {pid} is not CPython, or exports no C API (a frozen binary)",
                "start training with `autobrrr run -- ...`",
            )
        with open(proc / str(pid) / "mem", "rb", buffering=0) as memory:
            code = os.pread(memory.fileno(), vdso.end - vdso.start, vdso.start)
    except (FileNotFoundError, ProcessLookupError):
        raise TargetGone(f"process {pid} ended") from None
    except PermissionError as error:
        raise CannotAttach(f"process {pid} may not be read: {error}", f"autobrrr doctor {pid}") from None
    return Aim(
        pid=pid,
        architecture=architecture,
        add_pending=found[interpreter.ADD][0],
        run_string=found[interpreter.RUN][0],
        gadget=vdso.start + code.index(architecture.SYSCALL_INSTRUCTION),
        avoid=tuple((start, start + size) for name, (start, size) in found.items() if name in MACHINERY),
        any_thread="_PyParkingLot_Park" in found,
    )


def choose_thread(target: Aim, proc: Path = Path("/proc")) -> int:
    """The main thread; on Python 3.13 one that sleeps beside it, where there is one.

    From a sleeping thread the call can't meet its own lock: the main thread runs on and frees it.
    Before 3.13 only the main thread's own call is noticed at once.
    """
    if target.any_thread:
        for tid in sorted(int(entry) for entry in os.listdir(proc / str(target.pid) / "task")):
            if tid == target.pid:
                continue
            found = kernel_text.stat(proc / str(target.pid) / "task" / str(tid))
            if found is not None and found.state == "S":
                return tid
    return target.pid


def strike(target: Aim, code: bytes, proc: Path = Path("/proc")) -> Strike:
    """Have the target run `code` at its main thread's next check; retries where the moment is bad.

    Args:
        code: Python source. It must never raise.

    Raises:
        CannotAttach: somebody else traces the target, it is stopped, or no try worked.
        TargetGone: it ended.
    """
    state = Strike(page_bytes=-(-(SOURCE_AT + len(code) + 1) // mmap.PAGESIZE) * mmap.PAGESIZE)
    busy, end = 0, time.monotonic() + RETRY_FOR_S
    tid = target.pid
    memory = _open_memory(target.pid, proc)
    try:
        while not state.done and time.monotonic() < end:
            state.tries += 1
            try:
                tid = choose_thread(target, proc)
                _once(target, tid, code, memory, state)
            except (ptrace.Exited, ProcessLookupError, FileNotFoundError):
                if not (proc / str(target.pid)).exists() or tid == target.pid:
                    raise TargetGone(f"process {target.pid} ended while it was being attached") from None
            except ptrace.JobStopped:
                raise CannotAttach(
                    f"process {target.pid} is stopped (job control)",
                    f"kill -CONT {target.pid}, then try again",
                ) from None
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
                time.sleep(RETRY_PAUSE_S)
    finally:
        os.close(memory)
    if not state.done:
        raise CannotAttach(
            f"process {target.pid} took no call in {state.tries} tries: {state.why}", "try again"
        )
    return state


def _once(target: Aim, tid: int, code: bytes, memory: int, state: Strike) -> None:
    """One stop. Whatever happens in it, the thread leaves as it came."""
    cpu = target.architecture
    thread = ptrace.Tracee(tid, cpu.registers_bytes())
    began_ns = time.monotonic_ns()
    thread.interrupt()
    try:
        came = thread.wait_interrupted(STOP_S)
    except ptrace.JobStopped:
        thread.detach()  # the kernel puts the job's stop back
        raise
    if not came:
        # It can't be let go while it runs; this process's end does that, and nothing was changed.
        raise CannotAttach(f"thread {tid} did not stop within {STOP_S:.0f} s (a long system call?)")
    try:
        registers, mask = thread.registers(), thread.signal_mask()
        if _is_inside(target, cpu, registers, memory):
            state.why = "its thread stood in the pending-call machinery each time"
            return
        extended = [(note, thread.extended(note)) for note in cpu.EXTENDED_NOTES]
        with _lent_priority(tid):
            try:
                thread.set_signal_mask()
                _call(target, thread, code, memory, state)
            finally:
                _restore(thread, registers, extended, mask)
    finally:
        if thread.stopped:
            thread.detach()
        pause_ns = time.monotonic_ns() - began_ns
        state.longest_pause_ns = max(state.longest_pause_ns, pause_ns)
        for number in thread.held_back:
            signal.pidfd_send_signal(os.pidfd_open(target.pid), number)
    state.tid, state.pause_ns = tid, pause_ns


def _call(target: Aim, thread: ptrace.Tracee, code: bytes, memory: int, state: Strike) -> None:
    cpu, registers = target.architecture, thread.registers()
    if not state.page:
        # PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS
        arguments = (0, state.page_bytes, 3, 0x22, -1, 0)
        thread.set_registers(cpu.for_syscall(registers, target.gadget, cpu.SYS_MMAP, arguments))
        if not thread.step(CALL_S):
            raise OSError("its system call did not return")
        page = cpu.result(thread.registers())
        if -4096 < page < 0:
            raise OSError(-page, os.strerror(-page))
        state.page = page
    source = code.replace(PAGE_WORD, b"0x%016x" % state.page)
    source = source.replace(PAGE_BYTES_WORD, b"0x%016x" % state.page_bytes) + b"\0"
    os.pwrite(memory, source, state.page + SOURCE_AT)
    borrowed, top, frame = cpu.for_call(
        registers, target.add_pending, (target.run_string, state.page + SOURCE_AT), state.page
    )
    os.pwrite(memory, frame, top)
    thread.set_registers(borrowed)
    if not thread.run_until_fault(CALL_S):
        # It may have been entered all the same: what is injected must run once, however often it fires.
        state.why = "the call did not return in time and was called back"
        return
    after = thread.registers()
    if cpu.instruction(after) != state.page:
        raise OSError(f"the borrowed thread faulted at {cpu.instruction(after):#x}")
    state.done = cpu.result(after) == 0
    if not state.done:
        state.why = "its queue of pending calls was full"


def _restore(thread: ptrace.Tracee, registers: bytes, extended: list[tuple[int, bytes]], mask: bytes) -> None:
    if not thread.stopped:
        thread.interrupt()
        if not thread.wait_interrupted(STOP_S, keep_signals=True):
            raise OSError("the borrowed thread did not come back")
    for note, saved in extended:
        thread.set_extended(note, saved)
    # With the original system call number in them: the kernel restarts the interrupted call.
    thread.set_registers(registers)
    thread.set_signal_mask(mask)


def _is_inside(target: Aim, cpu: ModuleType, registers: bytes, memory: int) -> bool:
    """Whether the thread may hold the lock of the pending calls: on rip or on its stack."""
    try:
        words = memoryview(os.pread(memory, 8 * STACK_WORDS, cpu.stack(registers)))
    except OSError:
        return True  # a stack that can't be read is none to borrow
    whole = words[: len(words) // 8 * 8].cast("Q")
    return any(
        start <= word < end for word in (cpu.instruction(registers), *whole) for start, end in target.avoid
    )


def _open_memory(pid: int, proc: Path) -> int:
    try:
        return os.open(proc / str(pid) / "mem", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        raise TargetGone(f"process {pid} ended") from None
    except OSError as error:
        raise CannotAttach(
            f"process {pid} may not be traced: {error.strerror}", f"autobrrr doctor {pid}"
        ) from None


@contextlib.contextmanager
def _lent_priority(tid: int) -> Iterator[None]:
    """Let the borrowed thread have a CPU at once, for the length of the stop alone.

    On a machine with more work than CPUs it would wait some milliseconds each time that we let it
    run. Its nice value is never changed; where the kernel refuses, nothing is.
    """
    try:
        policy = os.sched_getscheduler(tid)
        if policy not in (os.SCHED_OTHER, os.SCHED_BATCH):
            raise PermissionError
        os.sched_setscheduler(tid, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.sched_setscheduler(tid, policy, os.sched_param(0))


def _hurry() -> None:
    """Ask for a CPU at once when the target stands still; where that is refused, as we are."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        with contextlib.suppress(OSError):
            os.nice(-10)


def main() -> int:
    """Read a request (JSON) from standard input, strike, write the outcome (JSON)."""
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    gc.disable()
    request = json.load(sys.stdin)
    answer: dict[str, object]
    try:
        target = aim(int(request["pid"]))
        prepared_ns = time.monotonic_ns()
        _hurry()
        done = strike(target, request["code"].encode())
        answer = {
            "tid": done.tid,
            "page": done.page,
            "page_bytes": done.page_bytes,
            "tries": done.tries,
            "pause_ns": done.pause_ns,
            "longest_pause_ns": done.longest_pause_ns,
            "prepared_ns": prepared_ns,
            "done_ns": time.monotonic_ns(),
        }
    except AutobrrrError as error:
        answer = {"error": error.message, "hint": error.hint, "exit_code": error.exit_code}
    json.dump(answer, sys.stdout)
    return 0
