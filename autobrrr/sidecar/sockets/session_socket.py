"""Where the socket of a session lies, who may bind it and who may speak to it.

One folder for each user, that user's or root's and closed to all others; the kernel tells both sides who the
other is. What else lies in its place is passed over, and said (`passed_over`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from autobrrr import paths
from autobrrr.errors import AutobrrrError, CannotAttach, TargetGone
from autobrrr.folders import Folder, objection_to, peer_uid
from autobrrr.machine import procfs

BACKLOG = 16
_LOCK = re.compile(r"(?:ranks-[0-9a-z]+|(?P<pid>\d+)-(?P<ticks>\d+)\.sock)\.lock")
_SOCKET = re.compile(r"(?:agent-)?(?P<pid>\d+)-(?P<ticks>\d+)\.sock")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTarget:
    """A process that a session is about."""

    pid: int
    start_ticks: int
    uid: int

    @property
    def name(self) -> str:
        """File name of its socket."""
        return paths.session_socket(self.pid, self.start_ticks, Path()).name


def find_target(pid: int, proc: Path = procfs.PROC) -> SessionTarget:
    """Look a process up.

    Raises:
        TargetGone: there is none with this pid, or it has ended.
    """
    found, owner = procfs.stat(pid, proc), procfs.owner(pid, proc)
    if found is None or owner is None or found.state in "ZX":
        raise TargetGone(f"there is no process {pid}", "autobrrr ls lists the training jobs")
    return SessionTarget(pid=pid, start_ticks=found.start_ticks, uid=owner[0])


def is_alive(target: SessionTarget, proc: Path = procfs.PROC) -> bool:
    """Whether the same process is still there."""
    return procfs.is_alive(target.pid, target.start_ticks, proc)


def runtimes_of(uid: int, env: Mapping[str, str] = os.environ) -> list[Path]:
    """Where sessions of a user's jobs lie, the preferred one first, also when root attaches to them."""
    if uid == os.geteuid():
        return paths.runtime_dirs(env)
    return paths.runtime_dirs({"XDG_RUNTIME_DIR": f"/run/user/{uid}"}, uid)


def folders(target: SessionTarget, env: Mapping[str, str] = os.environ) -> dict[Path, int]:
    """Where a session of this job may lie, and whose the folder must be: the job's user's, or the asker's."""
    found = dict.fromkeys(runtimes_of(target.uid, env), target.uid)
    for own in paths.runtime_dirs(env):
        found.setdefault(own, os.geteuid())
    return found


def places(target: SessionTarget, env: Mapping[str, str] = os.environ) -> dict[Path, int]:
    """Where a session of this job is looked for: `folders`, and where it lies by another `XDG_RUNTIME_DIR`.

    A shell of a login has that variable, and one of `su`, `cron` or a container has not.
    """
    found = folders(target, env)
    for uid in (target.uid, os.geteuid()):
        for variables in ({"XDG_RUNTIME_DIR": f"/run/user/{uid}"}, {}):
            for usual in paths.runtime_dirs(variables, uid):
                found.setdefault(usual, uid)
    return found


def trusted_for(uid: int) -> tuple[int, ...]:
    """Who may speak for a job of this user, and about it: they, we, and root."""
    return (uid, os.geteuid(), 0)


def passed_over(target: SessionTarget, env: Mapping[str, str] = os.environ) -> list[str]:
    """What lies where a session of this job could, and can't be trusted: one sentence each."""
    trusted = trusted_for(target.uid)
    whys = [objection_to(each, trusted) for each in folders(target, env)]
    return [f"{why}; it was passed over" for why in whys if why is not None]


def _existing(target: SessionTarget, places: Mapping[Path, int]) -> Iterator[Folder]:
    """The folders that are there and trusted; open as long as one is looked at."""
    for path, uid in places.items():
        with contextlib.suppress(AutobrrrError):
            folder = Folder.existing(path, uid, trusted_for(target.uid))
            if folder is not None:
                with folder:
                    yield folder


def connect(target: SessionTarget, env: Mapping[str, str] = os.environ) -> socket.socket | None:
    """A connection to the session of a job; None where there is none in the usual `places`."""
    return _connected(target, places(target, env))


def connect_anywhere(
    target: SessionTarget, env: Mapping[str, str] = os.environ, proc: Path = procfs.PROC
) -> socket.socket | None:
    """As `connect`, also where an unusual `XDG_RUNTIME_DIR` has put the session: all processes are asked."""
    return connect(target, env) or _connected(target, _held_folders(target, proc))


def _connected(target: SessionTarget, places: Mapping[Path, int]) -> socket.socket | None:
    for folder in _existing(target, places):
        with contextlib.suppress(OSError):
            return folder.connect(target.name, trusted_for(target.uid))
    return None


def _held_folders(target: SessionTarget, proc: Path) -> dict[Path, int]:
    """Where a sidecar of somebody trusted holds the lock of this job's session, and whose the sidecar is."""
    found: dict[Path, int] = {}
    for pid in procfs.pids(proc):
        owner = procfs.owner(pid, proc)
        if owner is None or owner[0] not in trusted_for(target.uid) or not _is_sidecar(pid, proc):
            continue
        for opened in procfs.open_files(pid, proc):
            folder, _, name = opened.raw.rpartition("/")
            if name == _lock_name(target):
                found[Path(folder)] = owner[0]
    return found


def _is_sidecar(pid: int, proc: Path) -> bool:
    return any(word.raw == "autobrrr.sidecar" for word in procfs.cmdline(pid, proc))


class SessionSocket:
    """The one session of a job: its lock, held for life, and its listening socket.

    It lies in the first of `folders` that can be used. Whoever starts the sidecar takes the lock and hands it
    over, so that a session which is on its way is one from its first moment.

    Args:
        lock: A descriptor of the lock, as the starter took it.

    Raises:
        AlreadyServed: another process holds the lock.
        AutobrrrError: none can: what is wrong with the first.
    """

    def __init__(
        self, target: SessionTarget, env: Mapping[str, str] = os.environ, lock: int | None = None
    ) -> None:
        self.target = target
        self.folder = _usable(target, env)
        self._listener: socket.socket | None = None
        if lock is not None:
            os.set_inheritable(lock, False)
            self.lock_fd = lock
            return
        try:
            with _room_in(self.folder):
                lock = self.folder.lock(_lock_name(target))
            if lock is None:
                raise AlreadyServed(f"process {target.pid} has a session already")
        except BaseException:
            self.folder.close()
            raise
        self.lock_fd = lock

    def listen(self) -> socket.socket:
        """Bind the socket, 0600 and the folder's owner's; one left behind by a dead session is removed."""
        self.folder.remove(self.target.name)
        with _room_in(self.folder):
            self._listener = self.folder.listen(self.target.name, BACKLOG)
        self._listener.setblocking(False)
        return self._listener

    def accept(self) -> socket.socket | None:
        """The next client; None where nobody waits, or where it is neither the job's user nor ours."""
        if self._listener is None:
            return None
        try:
            link, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return None
        if peer_uid(link) not in trusted_for(self.target.uid):
            link.close()
            return None
        return link

    def deafen(self) -> None:
        """No more clients: remove the socket."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            with contextlib.suppress(OSError):
                self.folder.remove(self.target.name)

    def hand_over(self) -> None:
        """Forget the lock, which another process holds as well."""
        os.close(self.lock_fd)
        self.folder.close()

    def close(self) -> None:
        """Remove socket and lock."""
        self.deafen()
        self.folder.unlock(_lock_name(self.target), self.lock_fd)
        self.folder.close()


class AlreadyServed(CannotAttach):
    """Another sidecar serves this job, or is just being started."""


def _usable(target: SessionTarget, env: Mapping[str, str]) -> Folder:
    errors: list[AutobrrrError] = []
    for path, uid in folders(target, env).items():
        try:
            return Folder.private(path, uid)
        except AutobrrrError as error:
            errors.append(error)
    raise errors[0]


def served(target: SessionTarget, env: Mapping[str, str] = os.environ, proc: Path = procfs.PROC) -> list[int]:
    """Processes that have a session where one of this job could lie; ascending, dead ones left out."""
    found = set()
    for folder in _existing(target, places(target, env)):
        for name in folder.names():
            named = _SOCKET.fullmatch(name)
            if named is not None and not name.startswith("agent-") and _is_there(named, proc):
                found.add(int(named["pid"]))
    return sorted(found)


def sweep(folder: Folder, proc: Path = procfs.PROC) -> list[str]:
    """Remove what sessions and agents left that are gone; returns the names.

    A session is gone when nobody holds its lock, an agent when its process is; one that is of another
    container, and has this folder too, answers.
    """
    removed: list[str] = []
    for name in sorted(folder.names()):
        named = _LOCK.fullmatch(name) or _SOCKET.fullmatch(name)
        if named is None:
            continue
        with contextlib.suppress(OSError):
            if name.endswith(".lock"):
                gone = _sweep_lock(folder, name)
            else:
                gone = not _is_there(named, proc) and _is_silent(folder, name)
                if gone:
                    folder.remove(name)
            if gone:
                removed.append(name)
    return removed


@contextlib.contextmanager
def _room_in(folder: Folder) -> Iterator[None]:
    """Say where there is none, and what helps."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise AutobrrrError(
            f"there is no room for a session in {folder.path}: {error.strerror}",
            "make room there, or set XDG_RUNTIME_DIR to a private folder elsewhere",
        ) from None


def _sweep_lock(folder: Folder, name: str) -> bool:
    """Take away a lock that nobody holds, and the socket that it was for."""
    lock = folder.lock(name)
    if lock is None:
        return False
    whose = name.removesuffix(".lock")
    if whose.endswith(".sock") and stat.S_ISSOCK(folder.kind(whose)):
        folder.remove(whose)
    folder.unlock(name, lock)
    return True


def _is_silent(folder: Folder, name: str) -> bool:
    """Whether it is a socket on which nobody listens; the pid in its name may be of another container."""
    if not stat.S_ISSOCK(folder.kind(name)) or folder.holds_lock(f"{name}.lock"):
        return False
    try:
        folder.connect(name, trusted_for(folder.uid)).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False


def _is_there(named: re.Match[str], proc: Path) -> bool:
    return procfs.start_ticks(int(named["pid"]), proc) == int(named["ticks"])


def _lock_name(target: SessionTarget) -> str:
    return f"{target.name}.lock"
