"""The first way: the main thread's next check runs the code, by `Py_AddPendingCall`.

Runs in the injector's own process. In goes what `strike.aim` found and Python source that never
raises; out comes a call in the target's queue, and a page of its memory with the source.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from autobrrr.attach.ptrace import borrowed_thread, ptrace_calls
from autobrrr.attach.ptrace import x86_64 as cpu
from autobrrr.attach.ptrace.borrowed_thread import InjectedCall, InjectionSite
from autobrrr.errors import CannotAttach
from autobrrr.machine import procfs

# Replaced in the code by the address and size of its memory; 18 letters, as "0x" and 16 digits.
PAGE_WORD, PAGE_BYTES_WORD = b"0xAUTOBRRRPAGEADDR", b"0xAUTOBRRRPAGESIZE"
SOURCE_AT = 64  # the call returns to the page's start, which can't be executed: a fault ends it
STACK_WORDS = 200


@dataclass(frozen=True, slots=True)
class PendingCall:
    """The main thread's next check runs the code: `Py_AddPendingCall` of `PyRun_SimpleString`."""

    target: InjectionSite
    code: bytes
    retry_pause_s: float = 0.001

    def choose_thread(self, tries: int, proc: Path) -> int:
        """The main thread; on Python 3.13 one that sleeps beside it, where there is one.

        From a sleeping thread the call can't meet its own lock: the main thread runs on and frees it.
        Before 3.13 only the main thread's own call is noticed at once. What the call starts has the main
        thread's filters: only a thread with as many may show them (`deadly_calls`).
        """
        pid = self.target.pid
        beside = borrowed_thread.sleeping_beside(pid, proc) if self.target.any_thread else []
        wanted = _filters(pid, pid, proc)
        return next((tid for tid in beside if _filters(pid, tid, proc) == wanted), pid)

    def objection(self, registers: bytes, memory: int) -> str:
        """The thread may hold the lock of the pending calls: on rip or on its stack."""
        inside = "its thread stood in the pending-call machinery each time"
        try:
            words = memoryview(os.pread(memory, 8 * STACK_WORDS, cpu.stack(registers)))
        except OSError:
            return "its thread has no stack to borrow"
        whole = words[: len(words) // 8 * 8].cast("Q")
        found = any(
            start <= word < end
            for word in (cpu.instruction(registers), *whole)
            for start, end in self.target.avoid
        )
        return inside if found else ""

    def call(self, thread: ptrace_calls.Tracee, memory: int, state: InjectedCall) -> None:
        """Write the source to a page of its own and add the call."""
        registers = thread.registers()
        if not state.page:
            state.page_bytes = borrowed_thread.pages_for(SOURCE_AT + len(self.code) + 1)
            wanted = (0, state.page_bytes, borrowed_thread.READ_WRITE, borrowed_thread.PRIVATE, -1, 0)
            state.page = borrowed_thread.system_call(self.target, thread, registers, (cpu.SYS_MMAP, wanted))
        source = self.code.replace(PAGE_WORD, b"0x%016x" % state.page)
        source = source.replace(PAGE_BYTES_WORD, b"0x%016x" % state.page_bytes) + b"\0"
        os.pwrite(memory, source, state.page + SOURCE_AT)
        arguments = (self.target.run_string, state.page + SOURCE_AT)
        borrowed, top, frame = cpu.for_call(registers, self.target.add_pending, arguments, state.page)
        os.pwrite(memory, frame, top)
        thread.set_registers(borrowed)
        if not thread.run_until_fault(borrowed_thread.CALL_S):
            # It may have been entered all the same: what is injected must run once, however often it fires.
            state.why = "the call did not return in time and was called back"
            return
        after = thread.registers()
        if cpu.instruction(after) != state.page:
            raise CannotAttach(
                f"the Python of process {self.target.pid} takes no call: it is shutting down, or not up yet",
                "attach while it trains; autobrrr ls lists the training jobs",
            )
        state.done = cpu.result(after) == 0
        if not state.done:
            state.why = "its queue of pending calls was full"


def _filters(pid: int, tid: int, proc: Path) -> tuple[str | None, ...]:
    """How a thread's system calls are filtered, and by how many filters where the kernel tells."""
    found = procfs.status(pid, proc, tid)
    return found.get("Seccomp"), found.get("Seccomp_filters")
