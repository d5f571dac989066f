"""The job's own signal handlers wait until what is put back has been put back.

A handler runs on the main thread between two instructions, in a replay too: what it set there (a flag that
says "stop at the end of this epoch") would be put back with all the rest. Here it is only noted that a signal
came. The handlers are called afterwards, each once, as Python does after a long call of C code.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal's own: makes no enum of each answer
import ctypes
import signal
import sys
import threading
from collections.abc import Callable
from functools import cache
from types import FrameType

from ..job_code.installed_code import is_own, is_standard
from ..live_torch.handler_errors import call_handler
from ..live_torch.torch_types import Abstain

Handler = Callable[[int, FrameType | None], object]
_MOST_ROUNDS = 64
_SIGACTION_BYTES = 1024  # the struct has 152 on x86-64


class HeldSignals:
    """A context manager around what puts state back.

    Handlers that came are called when it has ended, and what one raises is raised from there. Ctrl-C is not
    held: Python's own handler sets nothing.
    """

    def __init__(self) -> None:
        self._came: dict[int, Handler] = {}
        self._standing: list[tuple[int, Handler, Handler]] = []
        self._on = True

    def __enter__(self) -> None:
        """Stand in for the handlers.

        Raises:
            Abstain: this is not the main thread, on which they would run meanwhile.
        """
        found = {number: handler for number in _numbers() if (handler := _of_the_job(number)) is not None}
        if found and threading.current_thread() is not threading.main_thread():
            if all(map(_is_of_torch, found.values())):
                return
            raise Abstain("a signal handler of the job's would run on another thread meanwhile")
        try:
            for number, handler in found.items():
                self._standing.append((number, handler, self._stand_in(handler)))
                _replace(number, self._standing[-1][-1])
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        raised = self._put_back()
        self._on = False
        raised += self._call()
        if raised:  # what ends the process before others
            try:
                raise next((each for each in raised if not isinstance(each, Exception)), raised[0])
            finally:
                raised.clear()  # they hold this frame

    def _stand_in(self, handler: Handler) -> Handler:
        def note(number: int, frame: FrameType | None) -> None:
            if self._on:
                self._came.setdefault(number, handler)
            else:
                handler(number, frame)

        return note

    def _put_back(self) -> list[BaseException]:
        """What handlers have raised meanwhile that had been put back: then the others still have to be."""
        raised: list[BaseException] = []
        for _ in range(_MOST_ROUNDS):
            try:
                while self._standing:
                    number, handler, stand_in = self._standing[-1]
                    if _signal.getsignal(number) is stand_in:  # else the job has set another one
                        _replace(number, handler)
                    self._standing.pop()
                break
            except BaseException as error:  # noqa: BLE001  raised again at the end
                raised.append(error)
        return raised

    def _call(self) -> list[BaseException]:
        """Call the handlers of what came; what they have raised."""
        raised: list[BaseException] = []
        frame = _frame_of_the_job()
        while self._came:
            try:
                while self._came:
                    number = next(iter(self._came))
                    call_handler(self._came.pop(number), number, frame)
            except BaseException as error:  # noqa: BLE001  raised again at the end
                raised.append(error)
        return raised


def _replace(number: int, handler: Handler) -> None:
    """Another handler for Python alone: for the system all stays, as what `faulthandler` has set over it."""
    kept = ctypes.create_string_buffer(_SIGACTION_BYTES)
    _sigaction()(number, None, kept)
    try:
        _signal.signal(number, handler)
    finally:
        _sigaction()(number, kept, None)


def _of_the_job(number: int) -> Handler | None:
    found = _signal.getsignal(number)
    return found if callable(found) and found is not signal.default_int_handler else None


def _is_of_torch(handler: Handler) -> bool:
    """It looks after a loader's workers."""
    return str(getattr(handler, "__module__", "")).partition(".")[0] == "torch"


def _frame_of_the_job() -> FrameType:
    """Where it is in its code, or in torch's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_passed_by(str(frame.f_globals.get("__name__"))):
        frame = frame.f_back
    return frame


def _is_passed_by(module_name: str) -> bool:
    return is_own(module_name) or is_standard(module_name)


@cache
def _numbers() -> tuple[int, ...]:
    return tuple(map(int, signal.valid_signals()))


@cache
def _sigaction() -> Callable[..., int]:
    found = ctypes.CDLL(None).sigaction
    found.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)
    return found
