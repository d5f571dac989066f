"""Whether the job's own code runs on another thread, which may draw random numbers while a replay does.

Random states are the process's: to put them back after a replay would take back what the other thread has
drawn meanwhile. A thread that waits for another one's end, for a socket, or sleeps and hands nothing on
(a monitor) draws nothing.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import FrameType

from .installed_code import is_library

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
    """For another thread's end, for a socket, or asleep."""
    home, name = top.f_globals.get("__name__"), top.f_code.co_name
    if (home == "threading" and name in _ENDS) or home == "selectors":
        return True
    names = {each for frame in own for each in frame.f_code.co_names}
    return top is own[0] and "sleep" in top.f_code.co_names and names.isdisjoint(_FEEDS)
