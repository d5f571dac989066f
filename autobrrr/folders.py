"""Files, locks and sockets in folders of one user: this process's own.

Root that attaches to somebody else's job has become that user before it comes here (`attach/door`), so no
file is opened with more rights than its owner has. Left to see to: what may keep us waiting is not opened
(`open_plain`); who answers on a socket is asked of the kernel (`connect`); what outlives its maker is known
by a lock that dies with it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import struct
from pathlib import Path

CONNECT_TIMEOUT_S = 5.0
LOCK_TRIES = 50
APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO is refused
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class NotPlain(OSError):
    """What lies there is neither a plain file nor a folder."""


def open_plain(path: Path | str) -> int:
    """A descriptor to read a plain file from.

    What lies there is asked of what was found, before it is opened: a pipe would keep us waiting, and to open
    a device alone may set something off.

    Raises:
        OSError: there is none, it is none (IsADirectoryError, NotPlain), or it can't be read.
    """
    return reopened(os.open(path, os.O_PATH | os.O_CLOEXEC))


def reopened(found: int) -> int:
    """A descriptor to read from for one that only names a file, which it takes over. Raises likewise."""
    try:
        mode = os.fstat(found).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise NotPlain(errno.EINVAL, "not a regular file")
        # Without waiting: another may hold a lease on it.
        return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    finally:
        os.close(found)


def open_in(pid: int, path: str, flags: int, proc: Path = Path("/proc")) -> int:
    """A descriptor of what lies at a path as a process sees it; over no link. Raises OSError."""
    *above, last = [part for part in path.split("/") if part] or ["."]
    if "\0" in path or ".." in (*above, last):
        raise OSError(errno.EINVAL, "no path", path)
    fd = os.open(proc / str(pid) / "root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for part, how in (*((part, os.O_PATH | os.O_DIRECTORY) for part in above), (last, flags)):
        try:
            step = os.open(part, how | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
        finally:
            os.close(fd)
        fd = step
    return fd


def peer(link: socket.socket) -> tuple[int, int]:
    """Pid, 0 where it can't be seen from here, and uid of the process at the other end of a Unix socket."""
    pid, uid, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


def peer_uid(link: socket.socket) -> int:
    """Uid of the process at the other end of a Unix socket."""
    return peer(link)[1]


def listen(path: Path, backlog: int) -> socket.socket:
    """A listening socket, for this user and root alone from its first moment. Raises OSError."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(door.fileno(), 0o600)
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            door.bind(f"/proc/self/fd/{folder}/{path.name}")  # an address holds 107 bytes
        finally:
            os.close(folder)
        door.listen(backlog)
    except OSError:
        door.close()
        raise
    return door


def connect(path: Path) -> socket.socket:
    """Connect to a socket behind which the kernel names this user, or root.

    Raises:
        OSError: nobody listens, or somebody else does (PermissionError).
    """
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.settimeout(CONNECT_TIMEOUT_S)
        found = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)  # a link may lead anywhere
        try:
            if not stat.S_ISSOCK(os.fstat(found).st_mode):
                raise ConnectionRefusedError(errno.ECONNREFUSED, "no socket", str(path))
            link.connect(f"/proc/self/fd/{found}")
        finally:
            os.close(found)
        if peer_uid(link) not in (os.geteuid(), 0):
            raise PermissionError(errno.EPERM, f"uid {peer_uid(link)} answers there")
    except OSError:
        link.close()
        raise
    return link


def lock(path: Path) -> int | None:
    """Lock a file until its descriptor is closed, also in a child; None: somebody else holds the lock.

    Raises:
        OSError: it can't be made.
    """
    for _ in range(LOCK_TRIES):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _WHOLE_FILE)
        except OSError:
            os.close(fd)
            return None
        # Its last holder may have removed it since we opened it.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.lstat(path), os.fstat(fd)):
                return fd
        os.close(fd)
    return None


def is_locked(path: Path) -> bool:
    """Whether somebody holds a lock, which is only looked at."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        found = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _WHOLE_FILE)
    except OSError:
        return False
    finally:
        os.close(fd)
    return bool(struct.unpack_from("<h", found)[0] != fcntl.F_UNLCK)


def unlock(path: Path, fd: int) -> None:
    """Let go of a lock, and take its file away."""
    with contextlib.suppress(OSError):
        os.unlink(path)
    os.close(fd)


_WHOLE_FILE = struct.pack("<hhxxxxqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)  # struct flock


def make_held(folder: Path) -> int:
    """Make a folder for this user alone; its descriptor holds its lock until it is closed. Raises OSError."""
    unlocked = folder.with_name(f".{folder.name}")  # what has its name without a holder is taken away
    os.mkdir(unlocked, 0o700)
    try:
        fd = os.open(unlocked, _FOLDER)
        _is_held(fd)
        os.rename(unlocked, folder)
    except OSError:
        os.rmdir(unlocked)  # nobody else would
        raise
    return fd


def _is_held(fd: int) -> bool:
    """Whether another process holds the lock of an open folder; else it is ours now."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def remove_unheld(folder: Path) -> bool:
    """Take one of them away, unless somebody holds its lock; whether it is gone."""
    import shutil  # not for --help

    try:
        fd = os.open(folder, _FOLDER)
    except OSError:
        return False
    try:
        if os.fstat(fd).st_uid != os.geteuid() or _is_held(fd):
            return False
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(fd)
    return not os.path.lexists(folder)
