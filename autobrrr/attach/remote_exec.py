"""Python 3.14's own way in: what `sys.remote_exec` writes, written from any Python.

In goes a pid; out comes the place in its memory where the main thread looks for a script to run, or
the obstacle. Nothing is stopped and nothing of the target's is executed here: only its memory is
read and written, and what is read is checked before it is believed.

The layout is that of PEP 768: `_PyRuntime` begins with a table of offsets, the same for all releases
of one minor version (CPython 3.14, Include/internal/pycore_debug_offsets.h).
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autobrrr.attach.ptrace import kept_tracer, mapped_python
from autobrrr.machine import own_place, process_maps, procfs, same_program
from autobrrr.machine.same_program import Program

VERSION = (3, 14)
RUNTIME = "_PyRuntime"
OFF_VARIABLE, OFF_OPTION = "PYTHON_DISABLE_REMOTE_DEBUG", "disable-remote-debug"

_COOKIE = b"xdebugpy"
_TABLE = struct.Struct("<8s94Q")
_FINAL = 0xF  # release level in a version number; the table may change before
# Words of the table, counted from the cookie.
_VERSION, _FREE_THREADED, _INTERPRETERS = 1, 2, 5
_INTERPRETER_ID, _NEXT_INTERPRETER, _MAIN_THREAD = 7, 8, 10
_NATIVE_ID = 28
_BREAKER, _SUPPORT, _ENABLED, _PENDING, _PATH, _PATH_BYTES = 89, 90, 91, 92, 93, 94
_FARTHEST = 1 << 20  # no offset of a sound table is larger
_INTERPRETERS_AT_MOST = 256
_LONGEST_PATH = 4096
_PLEASE_STOP = 1 << 5  # has the thread look at all that is asked of it at its next check


NO_TABLE = "its Python shows no table of offsets of a final, ordinary 3.14"
SWITCHED_OFF = f"remote debugging is off in it ({OFF_VARIABLE}, -X {OFF_OPTION}, or its build)"
UNREADABLE = "its memory may not be read"
NO_MAIN_THREAD = "its main thread runs no Python"
IN_USE = "another tool's script waits there to be run"
FILTERED = "its system calls are filtered: whether it is killed for ours shows only in a stop"


class RemoteExecClosed(Exception):
    """This way in is not open; its text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSlot:
    """Where the main thread of a process looks for a script; addresses in the target."""

    pid: int
    pending: int  # 32 bits, 1 while a script waits
    path: int
    path_bytes: int  # with the zero at its end
    breaker: int  # lowest byte of the thread's eval breaker


def find(pid: int, proc: Path = Path("/proc")) -> RequestSlot:
    """Find the slot of a process.

    Raises:
        RemoteExecClosed: with the obstacle.
    """
    if procfs.status(pid, proc).get("Seccomp") == "2" and (
        kept_tracer.is_kept() or own_place.look().sees_filters
    ):
        raise RemoteExecClosed(FILTERED)
    try:
        address = _runtime(pid, proc)
        with _opened(pid, proc) as memory:
            return _slot(pid, address, memory, proc)
    except (OSError, struct.error):
        raise RemoteExecClosed(UNREADABLE) from None


@contextlib.contextmanager
def asked(
    slot: RequestSlot, script: str, proc: Path = Path("/proc"), *, program: Program | None = None
) -> Iterator[None]:
    """Ask the main thread to run a script at its next check; what was not run by then is taken back.

    Between reading and writing one byte of the eval breaker, about a microsecond, the target may set a
    bit that is then lost: the notice of a signal would wait for the next one. `sys.remote_exec` does
    the same, with eight bytes.

    Args:
        script: Path of the file, as the target sees it.
        program: What the target must still run: by an exec it may have become one with more rights.

    Raises:
        RemoteExecClosed: another script waits, or the memory can't be written.
        TargetGone: it runs another program.
    """
    text = os.fsencode(script)
    if len(text) >= slot.path_bytes:
        raise ValueError(f"a path of {len(text)} bytes; {slot.path_bytes - 1} fit")
    with contextlib.ExitStack() as stack:
        try:
            # Opened once: after an exec this is still the memory of the program before it.
            memory = stack.enter_context(_opened(slot.pid, proc, os.O_RDWR))
            if program is not None:
                same_program.require(slot.pid, program, proc)
            _ask(slot, text, memory)
        except OSError:
            raise RemoteExecClosed(UNREADABLE) from None
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # the target may have ended
                _take_back(slot, text, memory)


def _ask(slot: RequestSlot, text: bytes, memory: int) -> None:
    if _number(memory, slot.pending):
        raise RemoteExecClosed(IN_USE)
    os.pwrite(memory, text + b"\0", slot.path)
    os.pwrite(memory, struct.pack("<i", 1), slot.pending)
    (bits,) = _read(memory, slot.breaker, 1)
    os.pwrite(memory, bytes((bits | _PLEASE_STOP,)), slot.breaker)


def _take_back(slot: RequestSlot, text: bytes, memory: int) -> None:
    """Leave the slot empty; a script that another tool has put there meanwhile stays."""
    if _read(memory, slot.path, len(text) + 1) == text + b"\0":
        os.pwrite(memory, struct.pack("<i", 0), slot.pending)
        os.pwrite(memory, b"\0", slot.path)


def _runtime(pid: int, proc: Path) -> int:
    found = mapped_python.symbols(pid, process_maps.read(pid, proc), (mapped_python.RUN, RUNTIME), proc)
    if RUNTIME not in found:
        raise RemoteExecClosed(NO_TABLE)
    return found[RUNTIME][0]


def _slot(pid: int, runtime: int, memory: int, proc: Path) -> RequestSlot:
    cookie, *words = _TABLE.unpack(_read(memory, runtime, _TABLE.size))
    if cookie != _COOKIE:  # before 3.13 something else stands there
        raise RemoteExecClosed(NO_TABLE)
    table = (0, *map(int, words))
    _check(table)
    main = _main_interpreter(table, runtime, memory)
    if _number(memory, main + table[_ENABLED]) != 1:
        raise RemoteExecClosed(SWITCHED_OFF)
    thread = _address(memory, main + table[_MAIN_THREAD])
    # A pointer that leads to the main thread's own number leads to its state.
    inside = procfs.status(pid, proc).get("NSpid", str(pid)).split()[-1]
    if not thread or _address(memory, thread + table[_NATIVE_ID]) != int(inside):
        raise RemoteExecClosed(NO_MAIN_THREAD)
    support = thread + table[_SUPPORT]
    return RequestSlot(
        pid=pid,
        pending=support + table[_PENDING],
        path=support + table[_PATH],
        path_bytes=table[_PATH_BYTES],
        breaker=thread + table[_BREAKER],
    )


def _check(table: tuple[int, ...]) -> None:
    release = table[_VERSION] >> 24 & 0xFF, table[_VERSION] >> 16 & 0xFF
    if release != VERSION or table[_VERSION] >> 4 & 0xF != _FINAL or table[_FREE_THREADED]:
        raise RemoteExecClosed(NO_TABLE)
    used = (_INTERPRETERS, _INTERPRETER_ID, _NEXT_INTERPRETER, _MAIN_THREAD, _NATIVE_ID)
    offsets = [table[word] for word in (*used, _BREAKER, _SUPPORT, _ENABLED, _PENDING, _PATH)]
    if max(offsets) > _FARTHEST or not 0 < table[_PATH_BYTES] <= _LONGEST_PATH:
        raise RemoteExecClosed(NO_TABLE)


def _main_interpreter(table: tuple[int, ...], runtime: int, memory: int) -> int:
    """The one with the id 0; younger ones stand before it in the list."""
    each = _address(memory, runtime + table[_INTERPRETERS])
    for _ in range(_INTERPRETERS_AT_MOST):
        if each == 0:
            break
        if _address(memory, each + table[_INTERPRETER_ID]) == 0:
            return each
        each = _address(memory, each + table[_NEXT_INTERPRETER])
    raise RemoteExecClosed(NO_MAIN_THREAD)


@contextlib.contextmanager
def _opened(pid: int, proc: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    memory = kept_tracer.memory(pid, proc, flags)
    try:
        yield memory
    finally:
        os.close(memory)


def _read(memory: int, address: int, count: int) -> bytes:
    try:
        data = os.pread(memory, count, address)
    except OverflowError:  # no address at all
        data = b""
    if len(data) != count:
        raise OSError(f"{address:#x} can't be read")
    return data


def _address(memory: int, address: int) -> int:
    (value,) = struct.unpack("<Q", _read(memory, address, 8))
    return int(value)


def _number(memory: int, address: int) -> int:
    (value,) = struct.unpack("<i", _read(memory, address, 4))
    return int(value)
