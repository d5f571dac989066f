"""Whose exception it is: one that a signal handler of the job's has raised belongs to the job.

A handler runs between two instructions of the main thread, and that may be in our code. What it
raises (a job that is preempted, a time limit) must go on to the job, not end with our guard.
"""

from __future__ import annotations

import functools
import signal
from types import CodeType


def raised_by_handler(error: BaseException) -> bool:
    """Whether a Python function that handles a signal has raised this.

    A handler that is written in C leaves no frame, so what it raises counts as ours.
    """
    codes = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def _code(handler: object) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    found = getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)
    return found if isinstance(found, CodeType) else None
