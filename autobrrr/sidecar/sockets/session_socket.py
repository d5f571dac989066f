"""Where the socket of a session lies, who may bind it and who may speak to it.

One folder for each user, that user's and closed to all others; the kernel tells both sides who the other is.
What else lies in its place is passed over, and said (`passed_over`).
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from autobrrr import folders, paths
from autobrrr.errors import CannotAttach, TargetGone
from autobrrr.machine import procfs
from autobrrr.machine.kernel_text import names

BACKLOG = 16
_LOCK = re.compile(r"(?:ranks-[0-9a-z]+|\d+-\d+\.sock)\.lock")
_SOCKET = re.compile(r"(?P<pid>\d+)-(?P<ticks>\d+)\.sock")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTarget:
    """A process that a session is about."""

    pid: int
    start_ticks: int

    @property
    def name(self) -> str:
        """File name of its socket: a pid that was used again gets another."""
        return f"{self.pid}-{self.start_ticks}.sock"


def find_target(pid: int, proc: Path = procfs.PROC) -> SessionTarget:
    """Look a process up.

    Raises:
        TargetGone: there is none with this pid, or it has ended.
        CannotAttach: it is another user's, and we have not become that user (`attach/door`).
    """
    found, owner = procfs.stat(pid, proc), procfs.owner(pid, proc)
    if found is None or owner is None or found.state in "ZX":
        raise TargetGone(f"there is no process {pid}", "autobrrr ls lists the training jobs")
    if owner[0] != os.geteuid():
        how = "the command line becomes that user" if os.geteuid() == 0 else "as that user or as root"
        raise CannotAttach(f"process {pid} belongs to uid {owner[0]}", f"autobrrr attach {pid}: {how}")
    return SessionTarget(pid=pid, start_ticks=found.start_ticks)


def is_alive(target: SessionTarget, proc: Path = procfs.PROC) -> bool:
    """Whether the same process is still there."""
    return procfs.is_alive(target.pid, target.start_ticks, proc)


def places(env: Mapping[str, str] = os.environ) -> list[Path]:
    """Where our sessions are looked for: `runtime_dirs`, and where they lie by another `XDG_RUNTIME_DIR`.

    A shell of a login has that variable, and one of `su`, `cron` or a container has not.
    """
    usual = paths.runtime_dirs({"XDG_RUNTIME_DIR": f"/run/user/{os.geteuid()}"})
    return list(dict.fromkeys((*paths.runtime_dirs(env), *usual, *paths.runtime_dirs({}))))


def passed_over(env: Mapping[str, str] = os.environ) -> list[str]:
    """What lies where a session of ours could, and can't be trusted: one sentence each."""
    whys = map(paths.objection_to, paths.runtime_dirs(env))
    return [f"{why}; it was passed over" for why in whys if why is not None]


def connect(target: SessionTarget, env: Mapping[str, str] = os.environ) -> socket.socket | None:
    """A connection to the session of a job; None where there is none in the usual `places`."""
    for folder in _trusted(places(env)):
        with contextlib.suppress(OSError):
            return folders.connect(folder / target.name)
    return None


def is_under_way(target: SessionTarget, env: Mapping[str, str] = os.environ) -> bool:
    """Whether a process holds the lock of a job's session; its socket may not answer yet."""
    return any(folders.is_locked(folder / _lock_name(target)) for folder in _trusted(places(env)))


def _trusted(places: Iterable[Path]) -> Iterator[Path]:
    return (each for each in places if paths.objection_to(each) is None)


class SessionSocket:
    """The one session of a job: its lock, held for life, and its listening socket.

    It lies in the first of our runtime folders that can be used.

    Raises:
        AlreadyServed: another process holds the lock.
        AutobrrrError: no folder can be used: what is wrong with the first.
    """

    def __init__(self, target: SessionTarget, env: Mapping[str, str] = os.environ) -> None:
        self.target = target
        self.folder = paths.runtime_dir(env)
        self._lock, self._socket = self.folder / _lock_name(target), self.folder / target.name
        self._listener: socket.socket | None = None
        lock = folders.lock(self._lock)
        if lock is None:
            raise AlreadyServed(f"process {target.pid} has a session already")
        self.lock_fd = lock

    def listen(self) -> socket.socket:
        """Bind the socket, which is ours alone; one left behind by a dead session is removed."""
        self._socket.unlink(missing_ok=True)
        self._listener = folders.listen(self._socket, BACKLOG)
        self._listener.setblocking(False)
        return self._listener

    def accept(self) -> socket.socket | None:
        """The next client; None where nobody waits, or where it is another user than we, and not root."""
        if self._listener is None:
            return None
        try:
            link, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return None
        if folders.peer_uid(link) not in (os.geteuid(), 0):
            link.close()
            return None
        return link

    def deafen(self) -> None:
        """No more clients: remove the socket."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            with contextlib.suppress(OSError):
                self._socket.unlink()

    def close(self) -> None:
        """Remove socket and lock."""
        self.deafen()
        folders.unlock(self._lock, self.lock_fd)


class AlreadyServed(CannotAttach):
    """Another sidecar serves this job, or is just being started."""


def served(env: Mapping[str, str] = os.environ, proc: Path = procfs.PROC) -> list[int]:
    """Processes that have a session where one of ours could lie; ascending, dead ones left out."""
    named = (_SOCKET.fullmatch(name) for folder in _trusted(places(env)) for name in names(folder))
    known = {(int(each["pid"]), int(each["ticks"])) for each in named if each}
    return sorted(pid for pid, ticks in known if procfs.start_ticks(pid, proc) == ticks)


def sweep(folder: Path) -> list[str]:
    """Remove the locks that nobody holds, and the sockets of their sessions; returns the names."""
    removed: list[str] = []
    for name in names(folder):
        if _LOCK.fullmatch(name):
            with contextlib.suppress(OSError):
                removed += [name] if _sweep_lock(folder / name) else []
    return removed


def _sweep_lock(path: Path) -> bool:
    """Take away a lock that nobody holds, and the socket that it was for."""
    lock = folders.lock(path)
    if lock is None:
        return False
    if path.stem.endswith(".sock") and path.with_suffix("").is_socket():
        path.with_suffix("").unlink()
    folders.unlock(path, lock)
    return True


def _lock_name(target: SessionTarget) -> str:
    return f"{target.name}.lock"
