"""Where the socket of a session lies, who may bind it and who may speak to it.

One folder for each user, entered through a descriptor: nobody can swap it for a link meanwhile,
and a path longer than a socket address holds does no harm.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autobrrr import paths
from autobrrr.device import proc as procfs
from autobrrr.errors import CannotAttach, TargetGone

CONNECT_TIMEOUT_S = 5.0
BACKLOG = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A process that a session is about."""

    pid: int
    start_ticks: int
    uid: int

    @property
    def name(self) -> str:
        """File name of its socket."""
        return paths.session_socket(self.pid, self.start_ticks, Path()).name


def find_target(pid: int, proc: Path = procfs.PROC) -> Target:
    """Look a process up.

    Raises:
        TargetGone: there is none with this pid, or it has ended.
    """
    found, uid = procfs.stat(pid, proc), procfs.owner(pid, proc)
    if found is None or uid is None or found.state in "ZX":
        raise TargetGone(f"there is no process {pid}", "autobrrr ls lists the training jobs")
    return Target(pid=pid, start_ticks=found.start_ticks, uid=uid)


def is_alive(target: Target, proc: Path = procfs.PROC) -> bool:
    """Whether the same process is still there."""
    found = procfs.stat(target.pid, proc)
    return found is not None and found.start_ticks == target.start_ticks and found.state not in "ZX"


def runtime_of(uid: int, env: Mapping[str, str] = os.environ) -> Path:
    """The runtime folder in which sessions of a user's jobs lie, also when root attaches to them."""
    if uid == os.getuid():
        return paths.runtime_dir(env)
    return paths.runtime_dir({"XDG_RUNTIME_DIR": f"/run/user/{uid}"}, uid)


def folders(target: Target, env: Mapping[str, str] = os.environ) -> list[Path]:
    """Where a session of this job may lie: with the job's user, or with whoever asks."""
    found = [runtime_of(target.uid, env), paths.runtime_dir(env)]
    return list(dict.fromkeys(found))


@contextmanager
def _entered(folder: Path) -> Iterator[int]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def connect(target: Target, env: Mapping[str, str] = os.environ) -> socket.socket | None:
    """A connection to the session of a job; None where there is no session."""
    for folder in folders(target, env):
        link = _connect(folder, target.name)
        if link is not None:
            return link
    return None


def _connect(folder: Path, name: str) -> socket.socket | None:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.settimeout(CONNECT_TIMEOUT_S)
    try:
        with _entered(folder) as at:
            trusted = (os.getuid(), 0, os.fstat(at).st_uid)
            if os.stat(name, dir_fd=at, follow_symlinks=False).st_uid not in trusted:
                raise PermissionError(errno.EPERM, "the socket belongs to somebody else")
            link.connect(f"/proc/self/fd/{at}/{name}")
    except OSError:
        link.close()
        return None
    return link


class Endpoint:
    """The one session of a job: its lock, held for life, and its listening socket.

    Raises:
        AlreadyServed: another process holds the lock.
        AutobrrrError: the runtime folder is not private.
    """

    def __init__(self, target: Target, env: Mapping[str, str] = os.environ) -> None:
        self.target = target
        self._folder = paths.make_private(runtime_of(target.uid, env), target.uid)
        self._at = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._listener: socket.socket | None = None
        try:
            if os.fstat(self._at).st_uid != target.uid:
                os.fchown(self._at, target.uid, -1)
            self._lock = self._take_lock()
        except BaseException:
            os.close(self._at)
            raise

    def listen(self) -> socket.socket:
        """Bind the socket, 0600 and the target's user's; one left behind by a dead session is removed."""
        self._remove(self.target.name)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            listener.bind(f"/proc/self/fd/{self._at}/{self.target.name}")
        finally:
            os.umask(before)
        if os.getuid() != self.target.uid:
            os.chown(self.target.name, self.target.uid, -1, dir_fd=self._at, follow_symlinks=False)
        listener.listen(BACKLOG)
        listener.setblocking(False)
        self._listener = listener
        return listener

    def accept(self) -> socket.socket | None:
        """The next client; None where nobody waits, or where it is neither the job's user nor ours."""
        if self._listener is None:
            return None
        try:
            link, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return None
        if peer_uid(link) not in (self.target.uid, os.getuid(), 0):
            link.close()
            return None
        return link

    def deafen(self) -> None:
        """No more clients: remove the socket."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            self._remove(self.target.name)

    def close(self) -> None:
        """Remove socket and lock."""
        self.deafen()
        self._remove(_lock_name(self.target))
        os.close(self._lock)
        os.close(self._at)

    def _take_lock(self) -> int:
        """A lock on a file of its own name; retried where its last holder has just removed it."""
        name = _lock_name(self.target)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        while True:
            fd = os.open(name, flags, 0o600, dir_fd=self._at)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(fd)
                raise AlreadyServed(f"process {self.target.pid} has a session already") from None
            try:
                if os.stat(name, dir_fd=self._at).st_ino == os.fstat(fd).st_ino:
                    return fd
            except FileNotFoundError:
                pass
            os.close(fd)

    def _remove(self, name: str) -> None:
        try:
            os.unlink(name, dir_fd=self._at)
        except FileNotFoundError:
            pass


class AlreadyServed(CannotAttach):
    """Another sidecar serves this job, or is just being started."""


def peer_uid(link: socket.socket) -> int:
    """Uid of the process at the other end of a Unix socket."""
    credentials = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    uid: int = struct.unpack("3i", credentials)[1]
    return uid


def served(target: Target, env: Mapping[str, str] = os.environ, proc: Path = procfs.PROC) -> list[int]:
    """Processes that have a session where one of this job could lie; ascending, dead ones left out."""
    found = set()
    for folder in folders(target, env):
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            pid, _, ticks = name.removesuffix(".sock").partition("-")
            if name.endswith(".sock") and pid.isdigit() and ticks.isdigit():
                seen = procfs.stat(int(pid), proc)
                if seen is not None and seen.start_ticks == int(ticks):
                    found.add(int(pid))
    return sorted(found)


def sweep(runtime: Path, proc: Path = procfs.PROC) -> list[str]:
    """Remove sockets and locks of jobs that are gone and that nobody holds; returns their names."""
    removed: list[str] = []
    try:
        names = os.listdir(runtime)
    except OSError:
        return removed
    for name in names:
        parts = name.removeprefix("agent-").removesuffix(".lock").removesuffix(".sock").split("-")
        if not name.endswith((".sock", ".sock.lock")) or len(parts) != 2 or not all(map(str.isdigit, parts)):
            continue
        found = procfs.stat(int(parts[0]), proc)
        if found is None or found.start_ticks != int(parts[1]):
            try:
                if stat.S_ISSOCK(os.lstat(runtime / name).st_mode) or name.endswith(".lock"):
                    os.unlink(runtime / name)
                    removed.append(name)
            except OSError:
                continue
    return removed


def _lock_name(target: Target) -> str:
    return f"{target.name}.lock"
