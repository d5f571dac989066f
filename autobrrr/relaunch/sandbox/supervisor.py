"""The keeper of one trial: starts its command, has all its processes at hand, and ends them.

A process between the study and the script, `python -I -S`. It is the subreaper of everything that the
script starts, so nothing gets away by going into the background; it ends the trial when the study says
so or is gone. Where the script kills it, its parent, the guard, has all of them and ends them. In: one order
and then commands, as lines of JSON on a socket. Out: lines of JSON. Standard library only.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from autobrrr.machine import procfs
from autobrrr.relaunch.sandbox import overlay_mounts, workdir_copy

PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36
ARGUMENTS = 45  # field of /proc/PID/stat behind the name: where the words of the command lie, and end
ORPHAN_GRACE_S = 0.5  # for the script, when the study is gone
LOOK_S = 0.005
PAUSE_PATIENCE_S = 2.0
Line = dict[str, object]


class Keeper:
    """One trial, from the order to the last process."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._guard = os.getppid()
        self._heard = bytearray()
        self._child = 0
        self._ended = False
        self._uppers: list[overlay_mounts.Upper] = []
        self._kept: int | None = None
        self._wake, waker = socket.socketpair()
        for end in (self._wake, waker):
            end.setblocking(False)
        self._waker = waker
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)

    def keep(self) -> None:
        """Until the trial has been ended, by the study or because the study is gone."""
        order = self._next(None)
        if order is None:
            return
        try:
            if order.get("kept"):  # before the walls are raised: it lies outside of them
                self._kept = os.open(str(order["kept"]), os.O_PATH | os.O_DIRECTORY)
            fence = order.get("walls")
            if isinstance(fence, dict) and "place" in fence:
                self._uppers = [self._copied(**fence)]
            elif isinstance(fence, dict):
                self._uppers = overlay_mounts.raise_walls(**fence)
            self._start(order)
        except (overlay_mounts.NoWalls, OSError) as problem:
            what = "no_walls" if isinstance(problem, overlay_mounts.NoWalls) else "no_start"
            self._say({what: getattr(problem, "strerror", None) or str(problem)})
            return
        while True:
            command = self._next(None)
            if command is None:
                self._end(ORPHAN_GRACE_S)
                if order.get("temporary"):
                    workdir_copy.remove(str(order["temporary"]))
                return
            if "stop" in command:
                self._end(float(str(command["stop"])))
                if command.get("keep"):
                    self._keep_output(str(command["keep"]), int(str(command["most_bytes"])))
                self._say({"gone": True})
                return
            if "pause" in command:
                self._pause()
                self._say({"paused": time.perf_counter_ns(), "family": family()})
            elif "resume" in command:
                send_all(family(), signal.SIGCONT)
                self._say({"resumed": time.perf_counter_ns()})

    def _copied(
        self, size_bytes: int, folder: str, place: str, limit_bytes: int, open_folders: list[str]
    ) -> overlay_mounts.Upper:
        """Walls around a copy of the working folder."""
        tree = f"{place}/tree"
        try:
            chosen = workdir_copy.plan(folder, limit_bytes, apart=os.path.dirname(place))
            os.makedirs(tree, mode=0o700)
            os.chmod(tree, os.stat(folder).st_mode & 0o7777)
            known = workdir_copy.copy(chosen, tree)
        except workdir_copy.TooLarge as problem:
            raise overlay_mounts.NoWalls(str(problem)) from None
        except OSError as problem:
            raise overlay_mounts.NoWalls(f"can't copy {folder}: {problem.strerror}") from None
        overlay_mounts.shut_all_but(
            size_bytes=size_bytes,
            folder=folder,
            tree=tree,
            read_only=chosen.read_only,
            open_folders=open_folders,
        )
        self._say({"copied": workdir_copy.told(chosen)})
        return overlay_mounts.Upper(covers=folder, written=tree, known=known)

    def _start(self, order: Mapping[str, object]) -> None:
        words: list[str] = order["command"]  # type: ignore[assignment]
        env: dict[str, str] = order["environment"]  # type: ignore[assignment]
        failed_in, failed_out = os.pipe()
        keeper = os.getpid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGCHLD)  # wakes it: see `_next`
        self._child = os.fork()
        if not self._child:
            self._become(words, env, str(order["folder"]), keeper, failed_out)
        os.close(failed_out)
        with os.fdopen(failed_in, "rb") as failed:
            reason = failed.read()
        if reason:
            os.waitpid(self._child, 0)
            raise OSError(int(reason), os.strerror(int(reason)))
        for fd in (1, 2):  # the study sees the end of the output when the script's processes are gone
            os.dup2(0, fd)
        self._say({"started": self._child})

    def _become(
        self, words: list[str], env: dict[str, str], folder: str, keeper: int, failed: int
    ) -> NoReturn:
        """In the child: be the script."""
        try:
            signal.set_wakeup_fd(-1)
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.setsid()
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != keeper:
                os._exit(1)
            os.chdir(folder)
            os.execvpe(words[0], words, env)
        except OSError as error:
            os.write(failed, str(error.errno).encode())
        finally:
            os._exit(127)

    def _end(self, grace_s: float) -> None:
        """TERM to the script's group, KILL to whatever is left; returns when nothing is."""
        send_all(family(), signal.SIGCONT)
        if not self._ended:
            try:
                os.killpg(self._child, signal.SIGTERM)
            except ProcessLookupError:
                pass
            deadline = time.monotonic() + grace_s
            while not self._ended and time.monotonic() < deadline:
                self._reap()
                time.sleep(LOOK_S)
        kill_all(self._reap)
        self._reap()

    def _pause(self) -> None:
        deadline = time.monotonic() + PAUSE_PATIENCE_S
        while time.monotonic() < deadline:
            known = processes()
            running = [pid for pid in family() if known.get(pid, (0, "T"))[1] not in "TtZ"]
            if not running:
                return
            send_all(running, signal.SIGSTOP)
            time.sleep(LOOK_S / 10)

    def _keep_output(self, destination: str, most_bytes: int) -> None:
        into = destination if self._kept is None else f"/proc/self/fd/{self._kept}"
        try:
            count, size = overlay_mounts.copy_out(self._uppers, into, most_bytes)
            self._say({"kept": count, "bytes": size})
        except OSError as error:
            self._say({"not_kept": error.strerror or str(error)})

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid == self._child:
                self._ended = True
                self._say({"ended": os.waitstatus_to_exitcode(status), "left": len(family())})

    def _next(self, timeout_s: float | None) -> Line | None:
        """The next command; None when the study is gone, or the guard."""
        while b"\n" not in self._heard:
            if os.getppid() != self._guard:
                return None
            ready, _, _ = select.select([self._link, self._wake], [], [], timeout_s)
            if self._wake in ready:
                self._wake.recv(4096)
                if self._child:
                    self._reap()
            if self._link in ready:
                try:
                    came = self._link.recv(1 << 20)
                except OSError:
                    return None
                if not came:
                    return None
                self._heard += came
        line, _, rest = bytes(self._heard).partition(b"\n")
        self._heard = bytearray(rest)
        command = json.loads(line)
        return command if isinstance(command, dict) else {}

    def _say(self, line: Line) -> None:
        try:
            self._link.sendall(json.dumps(line).encode() + b"\n")
        except OSError:
            pass  # the study is gone: seen at the next read


def processes(proc: Path = Path("/proc")) -> dict[int, tuple[int, str]]:
    """Parent and state of every process."""
    seen = ((pid, procfs.stat(pid, proc)) for pid in procfs.pids(proc))
    return {pid: (found.ppid, found.state) for pid, found in seen if found is not None}


def family() -> list[int]:
    """All processes below this one that still are: of a keeper or its guard, those of the trial."""
    children: dict[int, list[int]] = {}
    for pid, (parent, state) in processes().items():
        if state != "Z":
            children.setdefault(parent, []).append(pid)
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def send_all(pids: list[int], number: int) -> None:
    """A signal to each that still is."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def kill_all(reap: Callable[[], None]) -> None:
    """Returns when no process is left below this one."""
    while below := family():
        send_all(below, signal.SIGKILL)
        reap()
        time.sleep(LOOK_S / 5)


def main() -> None:
    """`keeper FD`: serve the study at the other end of the socket."""
    for caught in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(caught, signal.SIG_IGN)  # the study ends the trial, or the end of the socket does
    link = socket.socket(fileno=int(sys.argv[1]))
    _be_a_shell()
    link.set_inheritable(False)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    keeper = os.fork()
    if keeper:
        link.close()
        _guard(keeper)
        return
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # a child does not inherit it
    try:
        Keeper(link).keep()
    finally:
        link.close()


def _guard(keeper: int) -> None:
    """Wait until the keeper has ended; what it left then is below this process."""
    for fd in (1, 2):
        os.dup2(0, fd)
    os.waitpid(keeper, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for what is adopted
    kill_all(lambda: None)


def _be_a_shell(proc: Path = Path("/proc")) -> None:
    """Show no name of ours to the script, whose parent this is: what it does must not hang on that."""
    fields = (proc / "self/stat").read_text().rpartition(")")[2].split()
    first, end = int(fields[ARGUMENTS]), int(fields[ARGUMENTS + 1])
    if 0 < first < end:
        ctypes.memset(first, 0, end - first)
        ctypes.memmove(first, b"sh", min(2, end - first))
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"sh")
