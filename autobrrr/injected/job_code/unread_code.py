"""Code of the job's that was not read does not run again: where a replay is about to, the replay ends.

Names lead to most of what a forward calls, and never to all: a name can be made, a method be called by C. So
the first replays run with a profile function that is asked at each call of Python code, before its first
line. What it meets can be read then.
"""

from __future__ import annotations

import dis
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CellType, CodeType, FrameType, FunctionType
from typing import cast
from weakref import finalize, ref

from ..live_torch.torch_types import Abstain
from .installed_code import is_library

_RESUME, _WHERE = dis.opmap.get("RESUME"), 3  # 0: at a function's start
_NAMEDTUPLE = "namedtuple_"  # whose methods have a namespace of their own


@dataclass(slots=True)
class ReadCode:
    """What was read of the job's code.

    Attributes:
        is_trusted: Whether the code of a module need not be read.
        codes: By id: code objects of another place may be equal.
    """

    is_trusted: Callable[[str], bool] = is_library
    codes: dict[int, CodeType] = field(default_factory=dict)

    def add(self, code: CodeType) -> None:
        """It was read, or need not be."""
        self.codes[id(code)] = code

    def holds(self, frame: FrameType) -> bool:
        """Whether what is about to run was read, or need not be."""
        known = id(frame.f_code) in self.codes
        if not known and self.trusts(frame):
            known = True
            self.add(frame.f_code)
        return known

    def trusts(self, frame: FrameType) -> bool:
        """Whether it is code that need not be read."""
        home = frame.f_globals.get("__name__")
        return isinstance(home, str) and (home.startswith(_NAMEDTUPLE) or self.is_trusted(home))


class UnreadCode(Abstain):
    """A function of the job's that was not read was about to run.

    Attributes:
        function: Made of its code, with the variables around it as they were; it has no defaults.
        first: What it was given first: its object, where it is a method.
    """

    def __init__(self, frame: FrameType) -> None:
        code, given = frame.f_code, frame.f_locals
        around = tuple(CellType(given[name]) if name in given else CellType() for name in code.co_freevars)
        self.function = FunctionType(code, frame.f_globals, code.co_name, None, around)
        if sys.version_info >= (3, 11):
            self.function.__qualname__ = code.co_qualname
        self.first = _first(frame)
        super().__init__(f"a forward runs {self.function.__qualname__}, to which nothing in it leads")

    def alone(self) -> UnreadCode:
        """Without the frames that it came through: they hold all that the replay has made."""
        self.__context__ = self.__traceback__ = None
        return self


@contextmanager
def unread_code_refused(read: ReadCode) -> Iterator[None]:
    """No code of the job's that was not read runs within, on this thread.

    Raises:
        UnreadCode: some was about to.
        Abstain: the job has set a profile function, for which there is one place.
    """
    if sys.getprofile() is not None:
        raise Abstain("the job has set a profile function (sys.setprofile)")
    found: list[UnreadCode] = []
    spared: FrameType | None = None  # an exception would end it, and what it does be lost

    def ask(frame: FrameType, event: str, _: object) -> None:
        nonlocal spared
        if spared is not None:
            spared = None if event == "return" and frame is spared else spared
            return
        if event == "call" and not read.holds(frame):
            found.append(UnreadCode(frame))
        if not found or event not in ("call", "c_call") or read.trusts(frame):
            return  # libraries, and what ends a guard, run to their ends
        if event == "call" and (_is_begun(frame) or _is_farewell(frame)):
            spared = frame
        else:
            raise _Stop

    try:
        with nothing_collected():
            try:
                sys.setprofile(ask)
                yield
            finally:
                sys.setprofile(None)
    except _Stop:
        pass
    if found:  # even where code of the job's has ended the exception
        raise found.pop(0) from None  # kept here, it would hold itself, and all that the replay has made


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Collections wait, and with them code of the job's that would run because something goes."""
    collects = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if collects:
            gc.enable()


def _first(frame: FrameType) -> object:
    return frame.f_locals.get(frame.f_code.co_varnames[0]) if frame.f_code.co_argcount else None


class _Stop(BaseException):
    """No `except Exception` of the job's ends it."""


def _is_begun(frame: FrameType) -> bool:
    """Whether it is a generator's that goes on."""
    at, code = frame.f_lasti, frame.f_code.co_code
    if sys.version_info < (3, 11):
        return at >= 0
    return not (code[at] == _RESUME and code[at + 1] & _WHERE == 0)


def _is_farewell(frame: FrameType) -> bool:
    """Whether Python calls it as something goes."""
    code, given, caller = frame.f_code, frame.f_locals, frame.f_back
    if code.co_name == "__del__" or (caller is not None and caller.f_code is finalize.__call__.__code__):
        return True
    arguments = map(given.get, code.co_varnames[: code.co_argcount])
    return any(
        issubclass(type(each), ref) and ref.__call__(cast("ref[object]", each)) is None for each in arguments
    )
