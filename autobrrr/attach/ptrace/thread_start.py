"""The second way: a thread of our own runs the code, started from one that waits in the kernel.

For jobs whose main thread sleeps while another trains: it takes no call before it wakes. Runs in the
injector's own process. In goes what `strike.aim` found and Python source that never raises; out comes
a native thread in the target that takes the GIL like any other, runs the source, and is gone.

The borrowed thread calls `pthread_create`, which allocates. That is right only where the thread holds
no lock of malloc's or the linker's: it must stand in a system call that waits (`x86_64.WAITS`), or read
what is no file of a disk. It need not have given up the GIL: nothing is called there that wants it.
"""

from __future__ import annotations

import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path

from autobrrr.attach.ptrace import borrowed_thread, mapped_python, ptrace_calls
from autobrrr.attach.ptrace import x86_64 as cpu
from autobrrr.attach.ptrace.borrowed_thread import InjectedCall, InjectionSite
from autobrrr.errors import CannotAttach, TargetGone
from autobrrr.machine import kernel_text, process_maps

_LIBC = re.compile(r"(libc|libpthread)(-[0-9.]+)?\.so(\..*)?")
# What the linker and malloc never read, as /proc names it.
_NO_FILES = ("pipe:[", "socket:[", "anon_inode:", "/dev/pts/", "/dev/tty", "/dev/console")
_CREATE = "pthread_create"
_OF_PYTHON = ("PyGILState_Ensure", mapped_python.RUN, "PyGILState_Release", "Py_IsInitialized")
_OF_LIBC = (_CREATE, "pthread_self", "pthread_detach", "munmap")
# As the thread's body finds them in its table, before its page's address and size.
BODY_CALLS = ("pthread_self", "pthread_detach", *_OF_PYTHON[:3], "munmap", "Py_IsInitialized")
TABLE_AT = 80
SOURCE_AT = TABLE_AT + 72
READ_EXECUTE = 5  # PROT_READ | PROT_EXEC
RETURN_TO = 16  # in the page that nobody can map: a fault there ends the call
# The thread slept, so that nobody waits for it; on a busy machine it waits for a CPU, and for malloc. The
# call can't be called back safely. All together is less than `kept_tracer.ANSWER_S`.
STEP_S, CALL_S = 1.5, 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewThread:
    """Starts a thread that runs the code."""

    target: InjectionSite
    code: bytes
    create: int  # pthread_create
    functions: tuple[int, ...]  # what the thread's body calls, in its order
    retry_pause_s: float = 0.1  # each try stops a thread, and what it does will hardly change at once

    def choose_thread(self, tries: int, proc: Path) -> int:
        """The main thread first, then those that sleep beside it, in turn."""
        candidates = [self.target.pid, *borrowed_thread.sleeping_beside(self.target.pid, proc)]
        return candidates[(tries - 1) % len(candidates)]

    def objection(self, registers: bytes, memory: int) -> str:
        """Only a thread that waits in the kernel may be borrowed for this."""
        waits = cpu.waits(registers) or _is_no_file(self.target.pid, cpu.reads(registers))
        return "" if waits else "none of its threads waits in the kernel where a thread can be started"

    def call(self, thread: ptrace_calls.Tracee, memory: int, state: InjectedCall) -> None:
        """Make a page with the thread's body, and start the thread."""
        registers = thread.registers()
        if not state.page:
            self._make_page(thread, registers, memory, state)
        arguments = (cpu.below_stack(registers), 0, state.page, state.page + TABLE_AT)
        borrowed, top, frame = cpu.for_call(registers, self.create, arguments, RETURN_TO)
        os.pwrite(memory, frame, top)
        thread.set_registers(borrowed)
        if not thread.run_until_fault(CALL_S):
            state.why = "a thread could not be started in time"
            return
        after = thread.registers()
        if cpu.instruction(after) != RETURN_TO:
            raise OSError(f"the borrowed thread faulted at {cpu.instruction(after):#x}")
        failed = cpu.result(after) & 0xFFFFFFFF
        state.done = failed == 0
        if failed:
            state.why = f"no thread can be started in it: {os.strerror(failed)}"

    def _make_page(
        self, thread: ptrace_calls.Tracee, registers: bytes, memory: int, state: InjectedCall
    ) -> None:
        count = borrowed_thread.pages_for(SOURCE_AT + len(self.code) + 1)
        wanted = (0, count, borrowed_thread.READ_WRITE, borrowed_thread.PRIVATE, -1, 0)
        page = borrowed_thread.system_call(self.target, thread, registers, (cpu.SYS_MMAP, wanted), STEP_S)
        words = struct.pack("<9Q", *self.functions, page, count)
        content = cpu.THREAD_BODY.ljust(TABLE_AT, b"\0") + words + self.code + b"\0"
        os.pwrite(memory, content, page)
        executable = (cpu.SYS_MPROTECT, (page, count, READ_EXECUTE))
        try:
            borrowed_thread.system_call(self.target, thread, registers, executable, STEP_S)
        except CannotAttach:
            unmap = (cpu.SYS_MUNMAP, (page, count))
            borrowed_thread.system_call(self.target, thread, registers, unmap, STEP_S)
            raise
        state.page, state.page_bytes = page, count


def way_to(target: InjectionSite, code: bytes, proc: Path = Path("/proc")) -> NewThread:
    """Find the functions that the thread's body calls.

    Raises:
        CannotAttach: one of them is missing.
        TargetGone: the process ended.
    """
    memory = borrowed_thread.open_memory(target.pid, proc)
    try:
        mapped = process_maps.read(target.pid, proc)
        _, found = mapped_python.find(target.pid, mapped, memory, _OF_PYTHON, proc)
        # The program's own C library: a second copy may be loaded later. What was loaded first lies highest.
        libraries = [each for each in reversed(mapped) if each.offset == 0 and _LIBC.fullmatch(each.name)]
        for _, symbols in mapped_python.symbols_of(libraries, memory, _OF_LIBC):
            found = {**symbols, **found}
    except OSError:
        raise TargetGone(f"process {target.pid} ended while it was being attached") from None
    finally:
        os.close(memory)
    missing = [name for name in (*_OF_LIBC, *_OF_PYTHON) if name not in found]
    if missing:
        raise CannotAttach(
            f"process {target.pid} has no {missing[0]}", "start training with `autobrrr run -- ...`"
        )
    return NewThread(
        target=target,
        code=code,
        create=found[_CREATE][0],
        functions=tuple(found[name][0] for name in BODY_CALLS),
    )


def _is_no_file(pid: int, fd: int | None, proc: Path = Path("/proc")) -> bool:
    """Whether a descriptor of the target leads to a pipe, a connection, a terminal or the like."""
    return fd is not None and (kernel_text.link(proc / str(pid) / "fd" / str(fd)) or "").startswith(_NO_FILES)
