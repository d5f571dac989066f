"""The first way: the main thread's next check starts a thread that runs the code, by `Py_AddPendingCall`.

Runs in the injector's own process. In goes what `strike.aim` found and Python source that never
raises; out comes a call in the target's queue, and a page of its memory, which the thread gives back.
No Python of ours runs on the main thread: a signal handler of the job that raised in it would be lost,
or end the pending call with an error that nobody has set (a SystemError in the job).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from autobrrr.attach.ptrace import borrowed_thread, ptrace_calls, thread_start
from autobrrr.attach.ptrace.borrowed_thread import InjectedCall, InjectionSite

STACK_WORDS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCall:
    """The main thread's next check starts the thread: `Py_AddPendingCall` of `THREAD_START`."""

    target: InjectionSite
    starts: thread_start.NewThread
    retry_pause_s: float = 0.001
    lends_priority: bool = True

    def choose_thread(self, tries: int, proc: Path) -> int:
        """The main thread; on Python 3.13 one that sleeps beside it, where there is one.

        From a sleeping thread the call can't meet its own lock: the main thread runs on and frees it.
        Before 3.13 only the main thread's own call is noticed at once.
        """
        beside = borrowed_thread.sleeping_beside(self.target.pid, proc) if self.target.any_thread else []
        return beside[0] if beside else self.target.pid

    def objection(self, registers: bytes, memory: int) -> str:
        """The thread may hold the lock of the pending calls: on rip or on its stack."""
        cpu = self.target.architecture
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
        """Write what starts the thread to a page of its own and add the call."""
        cpu, registers = self.target.architecture, thread.registers()
        if not state.page:
            self.starts.make_page(thread, registers, memory, state)
        arguments = (state.page + thread_start.START_AT, state.page + thread_start.TABLE_AT)
        borrowed, top, frame = cpu.for_call(
            registers, self.target.add_pending, arguments, thread_start.RETURN_TO
        )
        os.pwrite(memory, frame, top)
        thread.set_registers(borrowed)
        if not thread.run_until_fault(borrowed_thread.CALL_S):
            # It may have been entered all the same, and give its page back: the next try has another. What is
            # injected must run once, however often it fires.
            state.page, state.why = 0, "the call did not return in time and was called back"
            return
        after = thread.registers()
        if cpu.instruction(after) != thread_start.RETURN_TO:
            raise borrowed_thread.InterpreterDown
        state.done = cpu.result(after) & 0xFFFFFFFF == 0
        if not state.done:
            state.why = "its queue of pending calls was full"


def way_to(target: InjectionSite, code: bytes) -> PendingCall:
    """Find what the call needs. Raises CannotAttach."""
    return PendingCall(target=target, starts=thread_start.way_to(target, code))


def main() -> int:
    """The injector's own process."""
    return borrowed_thread.answer(way_to)
