"""What torch logs while we compile on its training thread: no handler of the job's gets it.

In: nothing. Out: a context, for the thread that enters it; what others log, and other packages, is the job's.
"""

from __future__ import annotations

import contextlib
import logging
from _thread import get_ident
from collections.abc import Iterator


class _NotOfTorch:
    """A filter for handlers, which also get what the loggers below theirs pass on."""

    __slots__ = ("_thread",)

    def __init__(self) -> None:
        self._thread = get_ident()

    def filter(self, record: logging.LogRecord) -> bool:
        return record.thread != self._thread or record.name.partition(".")[0] != "torch"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Nothing that torch logs is handled meanwhile; the loggers' levels, which TORCH_LOGS sets, stay."""
    ours = _NotOfTorch()
    handlers = _handlers()
    try:
        for handler in handlers:
            handler.addFilter(ours)
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(ours)


def _handlers() -> list[logging.Handler]:
    """Those that a record of torch's may come to."""
    known = list(logging.root.manager.loggerDict.items())
    loggers = [each for name, each in known if name.partition(".")[0] == "torch"]
    found = [logging.root, *(each for each in loggers if isinstance(each, logging.Logger))]
    return [handler for logger in found for handler in list(logger.handlers)]
