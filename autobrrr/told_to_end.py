"""What a command does that is told to end, so that it leaves no process and no folder behind."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator


@contextlib.contextmanager
def stopped_in_order() -> Iterator[None]:
    """SIGTERM, and a terminal that closes, stop it as Ctrl-C does: what it has started ends with it.

    Once: a terminal that closes says so twice, itself and by its shell, and the second would end the first.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    ours = [number for number, handler in before.items() if handler is signal.SIG_DFL]  # else: nohup

    def stop(number: int, frame: object) -> None:
        for each in ours:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    try:
        for number in ours:
            signal.signal(number, stop)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def deaf_child(command: list[str], stdout: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that doesn't hear Ctrl-C, which a terminal sends to all: it ends with the block.

    A Ctrl-C that comes while it is started is heard in the block.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        child = subprocess.Popen(command, stdout=stdout)
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            yield child
        finally:
            child.kill()
            child.communicate()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
