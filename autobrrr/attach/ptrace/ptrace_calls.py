"""ptrace(2) by ctypes, as thin as it gets: one traced thread, bytes in and out.

Everything here must be called from the thread that seized. Errors are OSError with the errno.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import time

from autobrrr.machine import kernel_text, procfs

_CONT, _SINGLESTEP, _DETACH = 7, 9, 17
_GETREGSET, _SETREGSET = 0x4204, 0x4205
_SEIZE, _INTERRUPT = 0x4206, 0x4207
_GETSIGMASK, _SETSIGMASK = 0x420A, 0x420B
_EVENT_STOP = 128
_WALL = 0x40000000
_NT_PRSTATUS = 1
_EXTENDED_BYTES = 20_480  # AVX-512 and AMX need about 11 kB
_STOP_SIGNALS = {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
# While we borrow the thread only faults may interrupt it: a handler must not run in our frame.
_FAULTS = (signal.SIGSEGV, signal.SIGTRAP, signal.SIGILL, signal.SIGBUS)
_ONLY_FAULTS = struct.pack("<Q", ~sum(1 << (number - 1) for number in _FAULTS) & ((1 << 64) - 1))
_POLL_S = 0.001


class Exited(Exception):
    """The traced thread is gone."""


class JobStopped(Exception):
    """The process is stopped by job control; the borrowed thread would not run."""


class _Span(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


class Tracee:
    """One seized thread. Buffers are made beforehand: little is allocated while it stands still.

    Args:
        tid: The thread; seized at once.

    Raises:
        OSError: EPERM (traced already, or not allowed), ESRCH (gone).
    """

    def __init__(self, tid: int, registers_bytes: int) -> None:
        self._tid = tid
        self._registers = ctypes.create_string_buffer(registers_bytes)
        self._extended = ctypes.create_string_buffer(_EXTENDED_BYTES)
        self._mask = ctypes.create_string_buffer(8)
        self._call(_SEIZE, 0, 0)
        self.stopped = False
        self.held_back: list[int] = []  # signals that came while the thread was borrowed

    def interrupt(self) -> None:
        """Ask the thread to stop; `wait_interrupted` follows."""
        self._call(_INTERRUPT, 0, 0)

    def wait_interrupted(self, timeout_s: float, *, keep_signals: bool = False) -> bool:
        """Wait for the stop that `interrupt` asked for; False where it did not come in time.

        A signal on its way to the thread is handed on. A borrowed thread (`keep_signals`) is waited for to be
        put back: signals are held back, job control's stop is a stop like others, and so is a fault, which is
        the late end of what it was made to do. One still due is fetched: let go with it, the job ends.
        """
        end = time.monotonic() + timeout_s
        while (status := self._wait(end)) is not None:
            number = os.WSTOPSIG(status)
            if status >> 16 == _EVENT_STOP:
                if number in _STOP_SIGNALS and not keep_signals:
                    raise JobStopped
                if not keep_signals or not self._fault_is_due():
                    return True
            elif keep_signals and number in _FAULTS:
                return True
            elif keep_signals:
                self.held_back.append(number)
            self._resume(_CONT, 0 if keep_signals else number)
        return False

    def _fault_is_due(self) -> bool:
        """Whether the thread gets a fault before it runs another instruction."""
        due = kernel_text.number(procfs.status(self._tid).get("SigPnd"), 16) or 0
        return any(due >> (number - 1) & 1 for number in _FAULTS)

    def step(self, timeout_s: float) -> bool:
        """Run one instruction; False where it did not end in time."""
        self._resume(_SINGLESTEP, 0)
        return self._until(signal.SIGTRAP, _SINGLESTEP, timeout_s)

    def run_until_fault(self, timeout_s: float) -> bool:
        """Run until the thread faults; False where it did not in time (it runs on then)."""
        self._resume(_CONT, 0)
        return self._until(signal.SIGSEGV, _CONT, timeout_s)

    def registers(self) -> bytes:
        """NT_PRSTATUS."""
        count = self._regset(_GETREGSET, _NT_PRSTATUS, self._registers, len(self._registers))
        return self._registers.raw[:count]

    def set_registers(self, registers: bytes) -> None:
        """Set NT_PRSTATUS."""
        ctypes.memmove(self._registers, registers, len(registers))
        self._regset(_SETREGSET, _NT_PRSTATUS, self._registers, len(registers))

    def extended(self, note: int) -> bytes:
        """One extended register set (floating point and vectors)."""
        count = self._regset(_GETREGSET, note, self._extended, _EXTENDED_BYTES)
        return self._extended.raw[:count]

    def set_extended(self, note: int, state: bytes) -> None:
        """Set an extended register set."""
        ctypes.memmove(self._extended, state, len(state))
        self._regset(_SETREGSET, note, self._extended, len(state))

    def signal_mask(self) -> bytes:
        """The blocked signals, 8 bytes."""
        self._call(_GETSIGMASK, 8, ctypes.addressof(self._mask))
        return self._mask.raw

    def set_signal_mask(self, mask: bytes = _ONLY_FAULTS) -> None:
        """Set the blocked signals; by default everything but faults."""
        ctypes.memmove(self._mask, mask, 8)
        self._call(_SETSIGMASK, 8, ctypes.addressof(self._mask))

    def detach(self) -> None:
        """Let go; the thread runs on."""
        self._call(_DETACH, 0, 0)
        self.stopped = False

    def _until(self, wanted: int, how: int, timeout_s: float) -> bool:
        end = time.monotonic() + timeout_s
        while (status := self._wait(end)) is not None:
            number = os.WSTOPSIG(status)
            if status >> 16 == 0 and number == wanted:
                return True
            if status >> 16 == 0 and number in _FAULTS:
                raise OSError(f"the borrowed thread got {signal.Signals(number).name}")
            if status >> 16 == 0:
                self.held_back.append(number)
            self._resume(how, 0)
        return False

    def _wait(self, end: float) -> int | None:
        while True:
            try:
                pid, status = os.waitpid(self._tid, _WALL | os.WNOHANG)
            except ChildProcessError:
                raise Exited from None
            if pid:
                if not os.WIFSTOPPED(status):
                    raise Exited
                self.stopped = True
                return status
            left = end - time.monotonic()
            if left <= 0:
                return None
            # SIGCHLD is blocked here and tells of the stop; the short limit covers a lost one.
            signal.sigtimedwait((signal.SIGCHLD,), min(left, _POLL_S))

    def _resume(self, how: int, number: int) -> None:
        self.stopped = False
        self._call(how, 0, number)

    def _regset(self, request: int, note: int, buffer: ctypes.Array[ctypes.c_char], count: int) -> int:
        span = _Span(ctypes.addressof(buffer), count)
        self._call(request, note, ctypes.addressof(span))
        return int(span.length)

    def _call(self, request: int, address: int, data: int) -> None:
        if libc.ptrace(request, self._tid, address, data) == -1:
            number = ctypes.get_errno()
            if number == 3 and request != _SEIZE:
                raise Exited
            raise OSError(number, os.strerror(number))
