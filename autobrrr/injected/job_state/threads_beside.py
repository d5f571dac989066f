"""Whether the job's own code runs on another thread, which may draw random numbers while a replay does.

Random states are the process's: to put them back after a replay would take back what the other thread has
drawn meanwhile. A thread that waits for another one's end or for a socket draws nothing; nor does one that
sleeps, or waits for an event, and whose code, as far as it is found by name, draws and hands on nothing.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import CodeType, FrameType, FunctionType

from ..job_code.bytecode_names import codes
from ..job_code.installed_code import home_of, is_library

# Stands on the agent's thread, above the frame that began it, which is nobody's module.
_ENTRY = f"{__name__.partition('.job_state')[0]}.entry"
_ENDS = ("join", "_wait_for_tstate_lock")
_FEEDS = frozenset((
    "put", "put_nowait", "send", "append", "set_result",
    "np", "numpy", "random", "torch",
))  # fmt: skip


def thread_beside() -> str | None:
    """The function of the job's own, on another thread than this one, that may draw; None where none does."""
    frames = sys._current_frames()
    frames.pop(threading.get_ident(), None)  # held by itself, all that is on it would stay
    for top in frames.values():
        stack = list(_stack(top))
        if any(frame.f_globals.get("__name__") == _ENTRY for frame in stack):
            continue
        own = [frame for frame in stack if _is_own(frame)]
        if own and not _waits(top, own):
            return own[0].f_code.co_qualname if sys.version_info >= (3, 11) else own[0].f_code.co_name
    return None


def _stack(top: FrameType) -> Iterator[FrameType]:
    frame: FrameType | None = top
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_own(frame: FrameType) -> bool:
    return not is_library(str(frame.f_globals.get("__name__")))


def _waits(top: FrameType, own: list[FrameType]) -> bool:
    """For another thread's end, for a socket, or for a while and then does nothing that counts here."""
    home, name = top.f_globals.get("__name__"), top.f_code.co_name
    if (home == "threading" and name in _ENDS) or home == "selectors":
        return True
    rests = (home == "threading" and name == "wait") or (top is own[0] and "sleep" in top.f_code.co_names)
    return rests and not _feeds(own)


def _feeds(own: list[FrameType]) -> bool:
    """Whether some code that these frames can call by a name draws numbers or hands things on."""
    kinds = {kind for frame in own for kind in _held_kinds(frame)}
    waiting: list[tuple[CodeType, dict[str, object]]] = [(frame.f_code, frame.f_globals) for frame in own]
    seen = set[CodeType]()
    while waiting:
        code, scope = waiting.pop()
        if code in seen:
            continue
        seen.add(code)
        names = {name for part in codes(code) for name in part.co_names}
        if not _FEEDS.isdisjoint(names):
            return True
        for name in names:
            for found in (scope.get(name), *(vars(kind).get(name) for kind in kinds)):
                function = getattr(found, "__func__", found)
                if isinstance(function, FunctionType) and not is_library(function.__module__ or ""):
                    waiting.append((function.__code__, function.__globals__))
    return False


def _held_kinds(frame: FrameType) -> Iterator[type]:
    """The user's classes of what a function's variables hold, and of what lies in that."""
    if frame.f_locals is frame.f_globals:
        return
    for value in list(frame.f_locals.values()):
        for each in (value, *getattr(value, "__dict__", {}).values()):
            yield from (kind for kind in type(each).__mro__ if not is_library(home_of(kind)))
