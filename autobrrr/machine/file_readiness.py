"""Whether a socket or pipe can be read or written now; of any number, where `select.select` ends at 1023."""

from __future__ import annotations

import math
import select
from typing import Protocol


class HasFileno(Protocol):
    def fileno(self) -> int: ...


def is_readable(file: HasFileno, timeout_s: float | None = 0.0) -> bool:
    """Whether something is there, or the other side has closed; waits for it, without end where `None`."""
    return readiness(file, timeout_s)[0]


def readiness(file: HasFileno, timeout_s: float | None, writes: bool = False) -> tuple[bool, bool]:
    """Whether it can be read, and whether it can be written where that is asked."""
    waiting = select.poll()
    waiting.register(file, select.POLLIN | (select.POLLOUT if writes else 0))
    found = waiting.poll(None if timeout_s is None else math.ceil(1000 * max(0.0, timeout_s)))
    events = found[0][1] if found else 0
    return bool(events & ~select.POLLOUT), bool(events & select.POLLOUT)
