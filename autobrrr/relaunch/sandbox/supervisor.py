"""The processes between a study and a script, `python -I -S`: a keeper raises walls, an init keeps the trial.

The keeper reads an order on its standard input and waits for its child, the first process of the trial.
Within walls that is the init of a PID namespace: the script can't signal it, and the kernel ends everything
with it. Without walls both are subreapers, so that nothing gets away by going into the background. By packets
the study tells the init to pause, resume and stop, then the keeper what to keep. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping

from autobrrr.machine import procfs
from autobrrr.relaunch.sandbox import overlay_mounts

IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
ORPHAN_GRACE_S = 0.5  # for the script, when the study is gone
LOOK_S = 0.005
PAUSE_PATIENCE_S = 2.0
STOPPED = 0  # exit code of an init that was told to end
Line = dict[str, object]
libc = ctypes.CDLL(None)


def main() -> None:
    """`keeper FD`: keep one trial for the study at the other end of the socket."""
    for caught in IGNORED:
        signal.signal(caught, signal.SIG_IGN)  # the study ends the trial, or the end of the socket does
    link = socket.socket(fileno=int(sys.argv[1]))
    link.set_inheritable(False)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    order = json.loads(sys.stdin.buffer.read())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:  # before the walls are raised: it lies outside of them
        kept = os.open(order["kept"], os.O_PATH | os.O_DIRECTORY) if order["kept"] else None
        uppers = overlay_mounts.raise_walls(**order["walls"]) if order["walls"] else {}
    except OSError as problem:
        _tell(link, {"no_walls": _said(problem)})
        return
    if not (init := os.fork()):
        _be_init(link, order)
    _, status = os.waitpid(init, 0)
    kill_all()
    if status == STOPPED and (wanted := _received(link)).get("keep"):
        into = str(wanted["keep"]) if kept is None else f"/proc/self/fd/{kept}"
        try:
            _tell(link, {"kept": overlay_mounts.copy_out(uppers, into)})
        except OSError as error:
            _tell(link, {"kept": error.strerror or str(error)})


def _be_init(link: socket.socket, order: Mapping[str, object]) -> None:
    status, cause = 1, "no_walls"
    try:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for fd in map(int, os.listdir("/proc/self/fd")):  # past the walls, for whoever may look at ours
            if fd > 2 and fd != link.fileno():
                with contextlib.suppress(OSError):  # that by which they were listed
                    os.close(fd)
        if order["walls"]:
            overlay_mounts.become_init()
        else:
            libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # a child does not inherit it
        cause = "no_start"
        status = TrialInit(link, order).keep()
    except OSError as problem:
        _tell(link, {cause: _said(problem)})
    finally:
        kill_all()
        os._exit(status)


class TrialInit:
    """The parent of the script, and of whatever loses its own.

    Raises:
        OSError: the script can't be started.
    """

    def __init__(self, link: socket.socket, order: Mapping[str, object]) -> None:
        self._link = link
        self._wake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        self._has_ended = False
        self._script = _spawned(order)
        _tell(link, {"started": True})

    def keep(self) -> int:
        """Until the study says so, or is gone."""
        while True:
            ready, _, _ = select.select([self._link.fileno(), self._wake], [], [])
            if self._wake in ready:
                os.read(self._wake, 4096)
                self._reap()
            if self._link.fileno() not in ready:
                continue
            command = _received(self._link)
            if "pause" in command:
                self._pause()
                _tell(self._link, {"paused": True})
            elif "resume" in command:
                send_all(family(), signal.SIGCONT)
                _tell(self._link, {"resumed": True})
            else:
                self._end(float(str(command.get("stop", ORPHAN_GRACE_S))))
                return 1 if not command else STOPPED

    def _end(self, grace_s: float) -> None:
        """TERM to the script's group; what is left after the grace ends with this process."""
        send_all(family(), signal.SIGCONT)
        if not self._has_ended:
            os.killpg(self._script.pid, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while not self._has_ended and time.monotonic() < deadline:
            self._reap()
            time.sleep(LOOK_S)

    def _pause(self) -> None:
        deadline = time.monotonic() + PAUSE_PATIENCE_S
        while time.monotonic() < deadline:
            running = [pid for pid in family() if getattr(procfs.stat(pid), "state", "T") not in "TtZ"]
            if not running:
                return
            send_all(running, signal.SIGSTOP)
            time.sleep(LOOK_S / 10)

    def _reap(self) -> None:
        for pid, status in reaped():
            if pid == self._script.pid:
                self._has_ended = True
                code = os.waitstatus_to_exitcode(status)
                _tell(self._link, {"ended": code, "left": len(family())})


def _spawned(order: Mapping[str, object]) -> subprocess.Popen[bytes]:
    """Start the script. The caller keeps the handle: Python reaps a process whose handle is gone."""

    def prepare() -> None:
        for caught in IGNORED:
            signal.signal(caught, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    words: list[str] = order["command"]  # type: ignore[assignment]
    env: dict[str, str] = order["environment"]  # type: ignore[assignment]
    folder = str(order["folder"])
    return subprocess.Popen(words, env=env, cwd=folder, start_new_session=True, preexec_fn=prepare)  # noqa: PLW1509


def _said(problem: OSError) -> str:
    return f"{problem.filename}: {problem.strerror}" if problem.filename else str(problem.strerror)


def _received(link: socket.socket) -> Line:
    """The next packet; empty where the other end is gone."""
    with contextlib.suppress(OSError):
        found: Line = json.loads(link.recv(1 << 16) or b"{}")
        return found
    return {}


def _tell(link: socket.socket, line: Line) -> None:
    with contextlib.suppress(OSError):  # the other end is gone: seen at the next read
        link.send(json.dumps(line).encode())


def family() -> list[int]:
    """All processes below this one that still are. Asks all: the kernel's own lists may miss a new one."""
    below = procfs.descendants(os.getpid(), known=procfs.children())
    return [pid for pid in below if getattr(procfs.stat(pid), "state", "Z") != "Z"]


def send_all(pids: list[int], number: int) -> None:
    """A signal to each that still is."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def reaped() -> Iterator[tuple[int, int]]:
    """Children that have ended, with their status."""
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            yield found


def kill_all() -> None:
    """Returns when no process is left below this one."""
    while below := family():
        send_all(below, signal.SIGKILL)
        list(reaped())
        time.sleep(LOOK_S / 5)
