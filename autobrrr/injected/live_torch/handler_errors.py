"""Whose exception it is: one that a signal handler of the job's has raised belongs to the job.

A handler runs between two instructions of the main thread, and that may be in our code. What it
raises (a job that is preempted, a time limit) must go on to the job, not end with our guard.
"""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable
from types import CodeType, FrameType


def raised_by_handler(error: BaseException) -> bool:
    """Whether a function that handles a signal has raised this.

    A handler that is written in C leaves no frame: an ordinary exception then counts as ours, one that
    ends the process (`SystemExit`) as the handler's. Python's own handler of Ctrl-C is none of the job's.
    """
    handlers = (signal.getsignal(number) for number in signal.valid_signals())
    theirs = [one for one in handlers if callable(one) and one is not signal.default_int_handler]
    codes = {call_handler.__code__, *(_code(one) for one in theirs)}
    if None in codes and not isinstance(error, Exception):
        return True
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def let_through(error: BaseException) -> None:
    """Raise it again where it is the job's. Comes first wherever an error of ours is ended."""
    if raised_by_handler(error):
        raise error


def call_handler(
    handler: Callable[[int, FrameType | None], object], number: int, frame: FrameType | None
) -> None:
    """Call a handler of the job's for a signal that came before: what it raises is told from ours."""
    handler(number, frame)


def _code(handler: object) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    found = getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
    return found if isinstance(found, CodeType) else None
