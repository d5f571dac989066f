"""A process forked from the job that can read all that the job has, and reaches nothing of it.

A forked process shares the job's open files together with their positions, its pipes, sockets and terminals,
and memory that both write to. Behind the fence, files are read from positions of the process's own and can't
be written to; what is written elsewhere, printed or logged stays here and is noticed. What writes to shared
memory, opens or changes a file to write, or starts, ends or signals another process, ends this one.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import re
import signal
import stat
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ...wire.process_link import ProcessLink, pair
from .write_filter import forbid_writes

CLOSING_S = 5.0
LOOK_S = 0.0005
_STREAMS = 2  # the last of the process's own
_PROT_READ = 1
_PR_SET_DUMPABLE = 4
_RLIMIT_NOFILE = 7
_FORKING = re.compile(r".*\bmulti-threaded, use of \w+\(\) may lead to deadlocks")  # what Python warns of


class FencedProcess:
    """One of them.

    Args:
        work: Runs there, with its end of the link.
        others: The job's ends of other links: else none would see that the job is gone.
        region: Shared memory that it may write to.

    Raises:
        OSError: it can't be started.
    """

    def __init__(
        self,
        work: Callable[[ProcessLink, Fence], None],
        *,
        others: Sequence[ProcessLink] = (),
        region: memoryview | None = None,
    ) -> None:
        self._ending = threading.Lock()
        self.link, there = pair()
        # A signal of the job's must not be handled there before the fence stands.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        filters: list[object] = warnings.filters  # type: ignore[assignment]
        unheard = ("ignore", _FORKING, DeprecationWarning, None, 0)
        filters.insert(0, unheard)  # what was said before is not said again, as after `simplefilter`
        try:
            self._pid = os.fork()
            if self._pid == 0:
                try:
                    gc.freeze()  # what is garbage is the job's to collect
                    for each in (self.link, *others):
                        each.close()
                    fence = Fence(there.fileno(), region)
                    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                    work(there, fence)
                finally:  # whatever it was: nothing of the job's goes on here
                    os._exit(0)
        except BaseException:
            self.link.close()
            raise
        finally:
            with contextlib.suppress(ValueError):
                filters.remove(unheard)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            there.close()

    def close(self) -> None:
        """End it, whatever it does, and the link."""
        self.link.close()
        self.kill()

    def kill(self) -> None:
        """End it; what it has sent can still be read. Any thread may."""
        with self._ending, contextlib.suppress(ChildProcessError):  # waited for: the number may be another's
            os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            os.kill(self._pid, signal.SIGKILL)
            until_s = time.monotonic() + CLOSING_S
            while not os.waitpid(self._pid, os.WNOHANG)[0] and time.monotonic() < until_s:
                time.sleep(LOOK_S)


class Fence:
    """Around this process, from now on.

    Args:
        link: The file that it may write to.
        region: Shared memory that it may write to.

    Raises:
        OSError: something can't be closed off.
    """

    def __init__(self, link: int, region: memoryview | None) -> None:
        self._reached_out = False
        self._positions: dict[int, int] = {}
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._quieten_signals()
        files = (ctypes.c_ulong * 2)()
        self._libc.getrlimit(_RLIMIT_NOFILE, files)
        files[0] = files[1]  # as many as may be: a job may have all that it can
        self._libc.setrlimit(_RLIMIT_NOFILE, files)
        self._outside = os.memfd_create("outside")
        self._own_files(link)
        self._close_memory(region)
        self._libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # one that ends leaves no core behind
        self._libc.fflush(None)  # what C has not yet written is the job's
        os.ftruncate(self._outside, 0)
        sys.dont_write_bytecode = True
        for stream in {sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__}:
            with contextlib.suppress(AttributeError):
                stream.write = self._reach_out  # type: ignore[method-assign,union-attr]
        if "logging" in sys.modules:
            sys.modules["logging"].Logger.handle = self._reach_out
        forbid_writes(self._libc)

    @property
    def is_touched(self) -> bool:
        """Something would have been seen outside, or a file was read on from where it was."""
        self._libc.fflush(None)
        if self._reached_out or os.fstat(self._outside).st_size > 0:
            return True
        try:
            return any(os.lseek(file, 0, os.SEEK_CUR) != at for file, at in self._positions.items())
        except OSError:  # closed
            return True

    @staticmethod
    def _quieten_signals() -> None:
        for each in signal.valid_signals():
            if callable(signal.getsignal(each)):  # the job's: it is for the job to say what comes of them
                signal.signal(each, signal.SIG_DFL if each == signal.SIGCHLD else signal.SIG_IGN)

    def _own_files(self, link: int) -> None:
        for number in map(int, os.listdir("/proc/self/fd")):
            try:
                mode = os.fstat(number).st_mode
            except OSError:
                continue  # of the listing
            if number in (link, self._outside):
                continue
            if number not in (1, _STREAMS) and (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                own = os.open(f"/proc/self/fd/{number}", os.O_RDONLY | os.O_CLOEXEC)
                self._positions[number] = os.lseek(own, os.lseek(number, 0, os.SEEK_CUR), os.SEEK_SET)
            elif number <= _STREAMS or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(number):
                own = os.dup(self._outside)
            else:
                continue
            os.dup2(own, number, inheritable=False)
            os.close(own)

    def _close_memory(self, region: memoryview | None) -> None:
        kept: Any = None if region is None else ctypes.addressof(ctypes.c_char.from_buffer(region))
        with open("/proc/self/maps", "rb") as maps:
            shared = [line.split(None, 5)[:5] for line in maps]
        shared = [each for each in shared if each[1][3:4] == b"s"]
        running = {tuple(each[3:5]) for each in shared if each[1][2:3] == b"x"}  # code that ctypes makes
        for span, allowed, _, *file in shared:
            begin, end = (int(each, 16) for each in span.split(b"-"))
            is_own = tuple(file) in running or (kept is not None and begin <= kept < end)
            if allowed[1:2] == b"w" and not is_own:
                self._libc.mprotect(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _PROT_READ)

    def _reach_out(self, *_: object) -> int:
        """Stands for what would be seen outside: it is not, and the job will do it."""
        self._reached_out = True
        return 0
