"""Code of the job's that was not read does not run again: where a replay is about to, the replay ends.

Reading finds most of what a forward calls, and never all: a name can be made, a method called by C. So the
first replays run with a profile function that is asked at each call of Python code, before its first line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from weakref import ref

from ..live_torch.torch_types import Abstain
from .installed_code import is_library

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
        code = frame.f_code
        if id(code) not in self.codes:
            home = frame.f_globals.get("__name__")
            if not isinstance(home, str) or not (home.startswith(_NAMEDTUPLE) or self.is_trusted(home)):
                return False
            self.add(code)
        return True


@contextmanager
def unread_code_refused(read: ReadCode) -> Iterator[None]:
    """No code of the job's that was not read runs within, on this thread.

    Raises:
        Abstain: some was about to, or the job has set a profile function, for which there is one place.
    """
    if sys.getprofile() is not None:
        raise Abstain("the job has set a profile function (sys.setprofile)")
    found: list[str] = []

    def ask(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and not read.holds(frame):
            found.append(frame.f_code.co_qualname if sys.version_info >= (3, 11) else frame.f_code.co_name)
            if not _is_farewell(frame):
                raise _Unread

    try:
        sys.setprofile(ask)
        try:
            yield
        finally:
            sys.setprofile(None)
    except _Unread:
        raise Abstain(_said_of(found)) from None
    if found:  # code of the job's has ended the exception
        raise Abstain(_said_of(found))


class _Unread(BaseException):
    """No `except Exception` of the job's ends it."""


def _is_farewell(frame: FrameType) -> bool:
    """Whether Python calls it as something goes: an exception would end there, and what it does be lost."""
    code = frame.f_code
    given = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    return code.co_name == "__del__" or (isinstance(given, ref) and given() is None)


def _said_of(found: list[str]) -> str:
    return f"a forward runs {found[0]}, which can't be found by reading it"
