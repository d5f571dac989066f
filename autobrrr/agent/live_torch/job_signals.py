"""Which errors within our code are ours, and end there: all but what a handler of a signal of the job raises.

Python runs such a handler in whatever code the main thread is in, and raises there what it raises.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import TracebackType


def raised_by_handler(error: BaseException) -> bool:
    """Whether a handler of a signal is in the traceback."""
    codes = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()}
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code not in codes:
        trace = trace.tb_next
    return trace is not None


class Ours:
    """A context in which errors of these kinds are ours: told, and over. It can be entered many times."""

    __slots__ = ("_kinds", "_told")

    def __init__(
        self, *kinds: type[Exception], told: Callable[[Exception], object] = lambda error: None
    ) -> None:
        self._kinds, self._told = kinds, told

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> bool:
        if not isinstance(error, self._kinds) or raised_by_handler(error):
            return False
        self._told(error)
        return True


ANY = Ours(Exception)
OF_TORCH = Ours(RuntimeError, AttributeError, TypeError, ValueError)
"""What another torch, or a device that is amiss, raises: the job will meet the latter by itself."""
