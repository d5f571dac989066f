"""Where forked DataLoader workers stand, read from their memory while they run.

In: pids of workers that this process has forked. Out: frames, innermost first, as code of the same file, name
and lines, and the instruction.
A forked child has this process's layout: objects of the interpreter have the same fields, and the thread
that forked has its state at the same address. So offsets are found by looking for known addresses in this
very process, and no table of versions is needed. Nothing is written, nothing is stopped: what changes
under our eyes reads as no stack at all. Spawned workers have a layout of their own and are left alone.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from _thread import get_ident
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType

from .code_sites import CallSite, is_own, named

WORD = 8
DEEPEST = 200
MOST_THREADS = 1024
MOST_TEXT, MOST_TABLE, MOST_CODE = 4096, 1 << 16, 1 << 20
FIELDS = 24  # words of a small object that are looked through
STATE_FIELDS = 40
API = (("PyInterpreterState_Get", 0), ("PyThreadState_Get", 0), ("PyInterpreterState_ThreadHead", 1))
WORKER_LOOP = "torch/utils/data/_utils/worker.py"
FETCH = "torch/utils/data/_utils/fetch.py"
TAGS = 3  # low bits of a reference that are none of the address


class NoStack(ValueError):
    """The interpreter is built in another way, or what stands there is not what it should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Offsets in bytes; `state` is the address of the thread's state in this process and its forks."""

    state: int
    current: tuple[int, ...]  # from the state to the running frame
    code: int  # of a frame, as are the next two
    previous: int
    instruction: int
    file: int  # of a code object, as are the next three
    name: int
    table: int
    first_line: int


@dataclass(slots=True, kw_only=True)
class Memory:
    """Of one process, by address."""

    pid: int
    _codes: dict[int, CodeType | None] = field(default_factory=dict)

    def read(self, address: int, count: int) -> bytes:
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as file:
            found = os.pread(file.fileno(), count, address)
        if len(found) != count:
            raise NoStack("a short read")
        return found

    def words(self, address: int, count: int) -> tuple[int, ...]:
        return struct.unpack(f"{count}Q", self.read(address, count * WORD))

    def _text(self, address: int) -> str:
        length = self.words(address + 2 * WORD, 1)[0]
        if length > MOST_TEXT:
            raise NoStack("no string")
        return self.read(address + sys.getsizeof("") - 1, length).decode("ascii")

    def code(self, layout: Layout, address: int) -> CodeType | None:
        """What stands for a code object that is there; None where something else is."""
        if address not in self._codes:
            self._codes[address] = self._read_code(layout, address)
        return self._codes[address]

    def _read_code(self, layout: Layout, address: int) -> CodeType | None:
        if address % WORD or not address:
            return None
        words = self.words(address, CodeType.__basicsize__ // WORD)
        if words[1] != id(CodeType) or not 0 < words[2] * 2 <= MOST_CODE:
            return None
        table = words[layout.table // WORD]
        length = self.words(table + 2 * WORD, 1)[0]
        if length > MOST_TABLE:
            raise NoStack("no table of lines")
        return _read.__code__.replace(
            co_code=bytes(2 * words[2]),
            co_filename=self._text(words[layout.file // WORD]),
            co_firstlineno=_whole(words, layout.first_line),
            co_linetable=self.read(table + bytes.__basicsize__ - 1, length),
            co_name=self._text(words[layout.name // WORD]),
        )


class WorkerLooks:
    """Looks at the workers of a loader in turn, counted by the user's line.

    Args:
        ident: Of the thread that forks them.
        foreign: Folders whose code is not the user's own.
    """

    def __init__(self, ident: int, foreign: tuple[str, ...]) -> None:
        self._layout = find_layout(ident)
        self._foreign = foreign
        self._memories: dict[int, Memory] = {}
        self._turn = 0
        self.looks = 0  # that could be read
        self.busy: Counter[str] = Counter()  # of them, those that found a worker at work on a batch

    def look(self, pids: Sequence[int]) -> None:
        """Look at the next one."""
        if self._layout is None or not pids:
            return
        self._turn += 1
        pid = pids[self._turn % len(pids)]
        try:
            stack = stack_of(self._memories.setdefault(pid, Memory(pid=pid)), self._layout)
        except (OSError, ValueError, OverflowError):
            return
        files = [code.co_filename for code, _ in stack]
        if not any(file.endswith(WORKER_LOOP) for file in files):
            return  # it has not come up yet, or is not what it was taken for
        self.looks += 1
        fetching = next((at for at, file in enumerate(files) if file.endswith(FETCH)), None)
        if fetching is not None:
            shown = next((at for at in stack[:fetching] if is_own(at[0], self._foreign)), stack[0])
            self.busy[named(*shown)] += 1


def stack_of(memory: Memory, layout: Layout) -> list[CallSite]:
    """Frames of the forked thread, innermost first; raises OSError, ValueError, OverflowError."""
    address = layout.state
    for offset in layout.current:
        address = memory.words(address + offset, 1)[0]
    found: list[CallSite] = []
    for _ in range(DEEPEST):
        if not address:
            break
        words = memory.words(address, FIELDS)
        at = words[layout.code // WORD] & ~TAGS
        code = memory.code(layout, at)
        if code is not None:
            found.append((code, words[layout.instruction // WORD] - (at + CodeType.__basicsize__)))
        address = words[layout.previous // WORD]
    return found


def find_layout(ident: int) -> Layout | None:
    """The layout of this interpreter and the state of a thread of it; None where it is not as expected."""
    frame = sys._getframe()
    try:
        return _read(ident, frame, frame.f_back)
    except (OSError, ValueError, ArithmeticError, LookupError, AttributeError, StopIteration, struct.error):
        return None


def _read(ident: int, frame: FrameType, caller: FrameType | None) -> Layout:
    memory = Memory(pid=os.getpid())
    if caller is None:
        raise NoStack("no caller")
    code = caller.f_code
    ours, theirs = _inner(memory, frame), _inner(memory, caller)
    outer = memory.words(theirs, FIELDS)
    start = id(code) + CodeType.__basicsize__
    words = memory.words(id(code), CodeType.__basicsize__ // WORD)
    own = memory.words(id(frame.f_code), len(words))
    lines = ((words, code.co_firstlineno), (own, frame.f_code.co_firstlineno))
    first_line = next(
        at
        for at in range(3 * WORD, len(words) * WORD, 4)
        if all(_whole(each, at) == line for each, line in lines)
    )
    states = dict(_states(memory))
    return Layout(
        state=states[ident],
        current=_path(memory, states[get_ident()]),
        code=_offset([word & ~TAGS for word in outer], id(code)),
        previous=_offset(memory.words(ours, FIELDS), theirs),
        instruction=_offset(outer, start + caller.f_lasti),
        file=_offset(words, id(code.co_filename)),
        name=_offset(words, id(code.co_name)),
        table=_offset(words, id(code.co_linetable)),
        first_line=first_line,
    )


def _whole(words: tuple[int, ...], at: int) -> int:
    (value,) = struct.unpack_from("i", struct.pack(f"{len(words)}Q", *words), at)
    return int(value)


def _offset(words: list[int] | tuple[int, ...], wanted: int) -> int:
    if wanted not in words:
        raise NoStack("a field is not where it is looked for")
    return list(words).index(wanted) * WORD


def _inner(memory: Memory, frame: FrameType) -> int:
    """The interpreter's own record of a frame."""
    for word in memory.words(id(frame), 8)[2:]:
        try:
            inside = memory.words(word, FIELDS) if word and word % WORD == 0 else ()
        except (OSError, ValueError, OverflowError):
            continue
        if id(frame.f_code) in [each & ~TAGS for each in inside]:
            return word
    raise NoStack("no frame")


def _path(memory: Memory, state: int) -> tuple[int, ...]:
    """From this thread's state to its running frame: a field, or one of what a field points to."""
    running = _inner(memory, sys._getframe())
    with open(f"/proc/{memory.pid}/mem", "rb", buffering=0) as file:
        fd = file.fileno()
        # Call no Python function until the match: its frame would become the running one.
        fields = struct.unpack(f"{STATE_FIELDS}Q", os.pread(fd, STATE_FIELDS * WORD, state))
        if running in fields:
            return (fields.index(running) * WORD,)
        for at, field_ in enumerate(fields):
            try:
                inside = struct.unpack("3Q", os.pread(fd, 3 * WORD, field_)) if field_ % WORD == 0 else ()
            except (OSError, OverflowError, struct.error):
                continue
            if running in inside:
                return at * WORD, inside.index(running) * WORD
    raise NoStack("no running frame")


def _states(memory: Memory) -> Iterator[tuple[int, int]]:
    """Threads of this interpreter: (ident, address of the state).

    The API is not asked for the next one: a thread may end while we look, and with it the state that is read.
    """
    interpreter, here, head = (
        ctypes.PYFUNCTYPE(ctypes.c_void_p, *([ctypes.c_void_p] * count))((name, ctypes.pythonapi))
        for name, count in API
    )
    own = memory.words(here(), STATE_FIELDS)
    ident, following = own.index(get_ident()), own.index(interpreter()) - 1  # after it stands its interpreter
    state = head(interpreter())
    for _ in range(MOST_THREADS):
        if not state:
            return
        fields = memory.words(state, STATE_FIELDS)
        yield fields[ident], state
        state = fields[following]
