"""A CPU at once: for the borrowed thread while it stands still, and for who waits for it.

Standard library only, since the injector's own process loads it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def lent(tid: int) -> Iterator[None]:
    """Let the borrowed thread have a CPU at once, for the length of the stop alone.

    On a machine with more work than CPUs it would wait some milliseconds each time that we let it
    run. Its nice value is never changed; where the kernel refuses, nothing is.
    """
    try:
        policy = os.sched_getscheduler(tid)
        if policy not in (os.SCHED_OTHER, os.SCHED_BATCH):
            raise PermissionError
        os.sched_setscheduler(tid, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.sched_setscheduler(tid, policy, os.sched_param(0))


def hurry() -> None:
    """Ask for a CPU at once when the target stands still; where that is refused, as we are."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        with contextlib.suppress(OSError):
            os.nice(-10)
