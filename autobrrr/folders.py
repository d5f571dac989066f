"""Files in folders that somebody else owns or may write in: the one module that touches them.

The rule, for every path that root, or whoever attaches, meets:

1. In a folder of somebody else's we act as its owner (`as_user`): what is made there is theirs from its
   first moment, so nothing is ever given away or changed by name, and no link leads us to what the owner
   could not reach alone.
2. Everything goes through the descriptor of a folder that was opened without following a link and whose
   owner and mode that descriptor has shown (`Folder`). A name is a name in that folder, never a path.
3. A path inside another process's root is resolved inside it (`open_beneath`).
4. A folder is trusted where it is ours, the job's user's or root's, and closed to all others. Who answers on
   a socket in it is asked of the kernel all the same (`peer_uid`).
5. What outlives its maker is known by a lock that dies with its holder (`Folder.lock`, `is_held`).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import pwd
import socket
import stat
import struct
import threading
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from autobrrr import paths
from autobrrr.errors import AutobrrrError

T = TypeVar("T")

ANSWER_S = 10.0  # another user's file system may be a program that never answers
CONNECT_TIMEOUT_S = 5.0
NOBODY = 65534
LOCK_TRIES = 50
_LOOK = "look at it with ls -ld {path}; remove it, or set XDG_RUNTIME_DIR to a private folder"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# glibc's setgroups is for all threads of a process; the system call is for the one that makes it.
_SETGROUPS = {"x86_64": 116, "aarch64": 159}
_OPENAT2 = 437  # on every architecture
_NO_MAGIC_LINKS, _IN_ROOT = 0x02, 0x10
_NOT_THERE = {errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG}


class MayNotAct(PermissionError):
    """We have not the right to act as another user."""


class NotPlain(OSError):
    """What lies there is neither a plain file nor a folder."""


def as_user(
    uid: int,
    gid: int,
    do: Callable[[], T],
    *,
    groups: Sequence[int] = (),
    answer_s: float = ANSWER_S,
    late: Callable[[T], object] = lambda result: None,
) -> T:
    """Run a function with the rights that a user has on file systems, and none of root's.

    It runs on a thread of its own, which stays that user until it ends: there is nothing to take back.
    Where we are that user already it just runs.

    Args:
        late: Gets a result that comes after it was given up on, such as a descriptor to close.

    Raises:
        MayNotAct: we may not act for others.
        OSError: `do` did, or nothing came within `answer_s` (TimeoutError).
    """
    if uid == os.geteuid():
        return do()
    results: list[T] = []
    errors: list[BaseException] = []
    given_up = threading.Event()

    def work() -> None:
        try:
            _become(uid, gid, groups)
            result = do()
        except BaseException as error:  # noqa: BLE001 - raised again below, on the thread that asked
            errors.append(error)
            return
        results.append(result)
        if given_up.is_set():
            late(result)

    thread = threading.Thread(target=work, name="as-user", daemon=True)
    thread.start()
    thread.join(answer_s)
    if errors:
        raise errors[0]
    if not results:
        given_up.set()
        raise TimeoutError(errno.ETIMEDOUT, f"the file system of uid {uid} does not answer")
    return results[0]


def _become(uid: int, gid: int, groups: Sequence[int]) -> None:
    number = _SETGROUPS.get(platform.machine())
    libc = ctypes.CDLL(None, use_errno=True)
    if number is None:
        raise OSError(errno.ENOSYS, "files of other users are out of reach on this architecture")
    given = (ctypes.c_uint32 * len(groups))(*groups)
    if libc.syscall(ctypes.c_long(number), ctypes.c_long(len(groups)), given) != 0:
        raise MayNotAct(ctypes.get_errno(), f"may not act for uid {uid}")
    for change, wanted in ((libc.setfsgid, gid), (libc.setfsuid, uid)):
        change(ctypes.c_uint(wanted))
        if change(ctypes.c_uint(0xFFFFFFFF)) != wanted:  # tells what holds now, and changes nothing
            raise MayNotAct(errno.EPERM, f"may not act for uid {uid}")


def group_of(uid: int) -> int:
    """A user's first group; nobody's where the user has no name here."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return NOBODY


class _How(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


def open_beneath(root: int, path: str) -> int:
    """Open a folder by its path inside a root; whatever links there are in it stay inside.

    Where the kernel has no `openat2` (before 5.6, or under a filter) a link is refused.

    Raises:
        OSError: there is none.
    """
    inner = path.strip("/") or "."
    how = _How(flags=os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, mode=0, resolve=_NO_MAGIC_LINKS | _IN_ROOT)
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.syscall(
        ctypes.c_long(_OPENAT2),
        ctypes.c_long(root),
        ctypes.c_char_p(os.fsencode(inner)),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )
    if fd >= 0:
        return fd
    number = ctypes.get_errno()
    if number not in _NOT_THERE:
        raise OSError(number, os.strerror(number), path)
    return walk(root, inner)


def walk(root: int, inner: str) -> int:
    """A folder below an open one, over no link. Raises OSError."""
    fd = os.dup(root)
    for part in inner.split("/"):
        try:
            step = os.open(part if part != ".." else "", _FOLDER, dir_fd=fd)
        finally:
            os.close(fd)
        fd = step
    return fd


def open_plain(path: Path | str) -> int:
    """A descriptor to read a plain file from.

    What lies there is asked of what was found, before it is opened: a pipe would keep us waiting, and to open
    a device alone may set something off.

    Raises:
        OSError: there is none, it is none (IsADirectoryError, NotPlain), or it can't be read.
    """
    found = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        return _plain(found)
    finally:
        os.close(found)


def _plain(found: int) -> int:
    mode = os.fstat(found).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise NotPlain(errno.EINVAL, "not a regular file")
    return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)


def peer_uid(link: socket.socket) -> int:
    """Uid of the process at the other end of a Unix socket."""
    credentials = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    uid: int = struct.unpack("3i", credentials)[1]
    return uid


GET_SEALS = 1034  # of linux/fcntl.h; not every Python names it
MOST_STUCK, LET_GO_S = 16, 0.1
_letting_go: list[threading.Thread] = []


def let_go(fd: int) -> bool:
    """Close a descriptor that came out of a job; False where too many are stuck already.

    A close asks the file system, which may be a program of the job's that never answers (FUSE), and not even
    SIGKILL ends that wait. Memory has no such file system.
    """
    try:
        fcntl.fcntl(fd, GET_SEALS)
    except OSError:
        _letting_go[:] = [each for each in _letting_go if each.is_alive()]
        if len(_letting_go) >= MOST_STUCK:
            return False
        closes = threading.Thread(target=os.close, args=(fd,), name="let-go", daemon=True)
        closes.start()
        _letting_go.append(closes)
        closes.join(LET_GO_S)
    else:
        os.close(fd)
    return True


def is_held(fd: int) -> bool:
    """Whether another process holds the lock of an open file or folder; else it is ours now."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder that was opened and found to be trusted. Everything in it is done as its owner."""

    path: str  # for sentences alone
    fd: int
    uid: int
    gid: int

    @classmethod
    def private(cls, path: Path, uid: int) -> Folder:
        """The private folder of a user, which is made where there is none.

        Raises:
            AutobrrrError: something else lies there, or it can't be made.
        """
        gid = os.getegid() if uid == os.geteuid() else group_of(uid)
        try:
            as_user(uid, gid, lambda: paths.make_private(path, uid))
        except OSError as error:
            raise AutobrrrError(
                f"{path} can't be made: {error.strerror}", "set XDG_RUNTIME_DIR to a private folder"
            ) from None
        found = cls.existing(path, uid, (uid,))
        if found is None:
            raise AutobrrrError(f"{path} is being replaced by somebody", f"ls -ld {path}")
        return found

    @classmethod
    def existing(cls, path: Path, uid: int, trusted: Container[int]) -> Folder | None:
        """A user's folder that is there, or root's in its place; None where there is none.

        Raises:
            AutobrrrError: it is not to be trusted: another user's, or open to others.
        """
        gid = os.getegid() if uid == os.geteuid() else group_of(uid)
        try:
            fd = as_user(uid, gid, lambda: os.open(path, _FOLDER), late=os.close)
        except OSError:
            why = objection_to(path, trusted)
            if why is not None:
                raise AutobrrrError(why, _LOOK.format(path=path)) from None
            return None
        return cls.opened(fd, str(path), trusted)

    @classmethod
    def opened(cls, fd: int, path: str, trusted: Container[int]) -> Folder:
        """The folder behind a descriptor, which it takes over.

        Raises:
            AutobrrrError: it is not to be trusted.
        """
        found = os.fstat(fd)
        why = _objection(found, path, trusted)
        if why is not None:
            os.close(fd)
            raise AutobrrrError(why, _LOOK.format(path=path))
        return cls(path=path, fd=fd, uid=found.st_uid, gid=found.st_gid)

    @classmethod
    def new(cls, parent: int, name: str, uid: int, gid: int) -> Folder:
        """A private folder of a user that was not there before, in one of everybody's; its lock is held.

        Raises:
            OSError: it can't be made, takes no sockets (some network file systems do not), or another took
                its place.
        """

        def made() -> int:
            os.mkdir(name, 0o700, dir_fd=parent)
            fd = -1
            try:
                fd = os.open(name, _FOLDER, dir_fd=parent)
                found = os.fstat(fd)
                private = found.st_uid == uid and not stat.S_IMODE(found.st_mode) & 0o077
                if not private or is_held(fd) or not _is_named(fd, name, parent):
                    raise PermissionError(errno.EPERM, "another folder took the place of the one just made")
                with socket.socket(socket.AF_UNIX) as probe:
                    probe.bind(f"/proc/self/fd/{fd}/probe")
                os.unlink("probe", dir_fd=fd)
            except OSError:
                if fd >= 0:
                    os.close(fd)
                with contextlib.suppress(OSError):
                    os.rmdir(name, dir_fd=parent)
                raise
            return fd

        return cls(path=name, fd=as_user(uid, gid, made), uid=uid, gid=gid)

    def names(self) -> list[str]:
        """What lies in it; nothing where it can't be read."""
        try:
            return self._as_owner(lambda: os.listdir(self.fd))
        except OSError:
            return []

    def kind(self, name: str) -> int:
        """Mode of a file, by name and no further than a link; 0 where there is none."""
        try:
            return self._as_owner(lambda: os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_mode)
        except OSError:
            return 0

    def write(self, name: str, data: bytes) -> None:
        """A new file, its owner's alone."""

        def made() -> None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(name, flags, 0o600, dir_fd=self.fd), "wb") as file:
                file.write(data)

        self._as_owner(made)

    def link_text(self, name: str) -> str | None:
        """What a symbolic link says, which is followed nowhere; None where there is none."""
        try:
            return self._as_owner(lambda: os.readlink(name, dir_fd=self.fd))
        except OSError:
            return None

    def file_text(self, name: str, most_bytes: int) -> str | None:
        """The beginning of a plain file; None where there is none."""

        def read() -> str | None:
            with self._named(name) as found:
                fd = _plain(found)
            try:
                return os.read(fd, most_bytes).decode(errors="replace")
            finally:
                os.close(fd)

        try:
            return self._as_owner(read)
        except OSError:
            return None

    def remove(self, name: str) -> None:
        """Take a file away; none there is as well."""
        with contextlib.suppress(FileNotFoundError):
            self._as_owner(lambda: os.unlink(name, dir_fd=self.fd))

    def remove_all(self, parent: int, name: str) -> None:
        """Take its files and itself away. What can't be removed stays."""
        with contextlib.suppress(OSError):
            self._as_owner(lambda: _remove_all(self.fd, parent, name))

    def listen(self, name: str, backlog: int) -> socket.socket:
        """A listening socket, for its owner and root alone.

        The mode is set before there is a name. Through the descriptor a path of any depth fits into the 107
        bytes of an address.
        """

        def made() -> socket.socket:
            door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                os.fchmod(door.fileno(), 0o600)
                door.bind(f"/proc/self/fd/{self.fd}/{name}")
                door.listen(backlog)
            except OSError:
                door.close()
                raise
            return door

        return self._as_owner(made)

    def connect(self, name: str, trusted: Container[int]) -> socket.socket:
        """Connect to a socket behind which the kernel names a trusted user.

        Raises:
            OSError: nobody listens, or somebody else does (PermissionError).
        """

        def reached() -> socket.socket:
            link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                link.settimeout(CONNECT_TIMEOUT_S)
                with self._named(name) as found:
                    link.connect(f"/proc/self/fd/{found}")
                if peer_uid(link) not in trusted:
                    raise PermissionError(errno.EPERM, f"uid {peer_uid(link)} answers there")
            except OSError:
                link.close()
                raise
            return link

        return self._as_owner(reached)

    def lock(self, name: str) -> int | None:
        """Hold a lock on a file of its own name until the descriptor is closed; None: another has it.

        Raises:
            OSError: what lies there is no file of the folder's owner, or it can't be made.
        """

        def taken() -> int | None:
            for _ in range(LOCK_TRIES):
                fd = self._open_lock(name, os.O_CREAT)
                if is_held(fd):
                    os.close(fd)
                    return None
                # Its last holder may have removed it since we opened it.
                if _is_named(fd, name, self.fd):
                    return fd
                os.close(fd)
            return None

        return self._as_owner(taken)

    def holds_lock(self, name: str) -> bool:
        """Whether somebody holds a lock. A file without a holder is one that was killed."""

        def seen() -> bool:
            fd = self._open_lock(name, 0)
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
            finally:
                os.close(fd)
            return False

        try:
            return self._as_owner(seen)
        except OSError:
            return False

    def unlock(self, name: str, fd: int) -> None:
        """Let go of a lock, and take its file away."""
        with contextlib.suppress(OSError):
            self.remove(name)
        os.close(fd)

    def close(self) -> None:
        os.close(self.fd)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _named(self, name: str) -> Iterator[int]:
        """A descriptor that only names what lies there; a link is itself, and leads nowhere."""
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.fd)
        try:
            yield fd
        finally:
            os.close(fd)

    def _open_lock(self, name: str, create: int) -> int:
        flags = os.O_RDWR | create | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(name, flags, 0o600, dir_fd=self.fd)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != self.uid:
            os.close(fd)
            raise PermissionError(errno.EPERM, f"{name} in {self.path} is no lock of uid {self.uid}")
        return fd

    def _as_owner(self, do: Callable[[], T]) -> T:
        return as_user(self.uid, self.gid, do)


def remove_unheld(parent: int, name: str, uid: int, gid: int) -> bool:
    """Take a user's folder away with its files, unless somebody holds its lock.

    Raises:
        OSError: it is no folder, or can't be removed.
    """

    def removed() -> bool:
        fd = os.open(name, _FOLDER, dir_fd=parent)
        try:
            return not is_held(fd) and _remove_all(fd, parent, name)
        finally:
            os.close(fd)

    return as_user(uid, gid, removed)


def _remove_all(fd: int, parent: int, name: str) -> bool:
    for each in os.listdir(fd):
        with contextlib.suppress(OSError):
            os.unlink(each, dir_fd=fd)
    os.rmdir(name, dir_fd=parent)
    return True


def _is_named(fd: int, name: str, parent: int) -> bool:
    """Whether a name still is that of an open file."""
    try:
        there = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    held = os.fstat(fd)
    return (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino)


def objection_to(path: Path, trusted: Container[int]) -> str | None:
    """Why what lies at a path is no folder to be trusted; None where it is one, or where nothing lies."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return _objection(found, str(path), trusted)


def _objection(found: os.stat_result, path: str, trusted: Container[int]) -> str | None:
    if not stat.S_ISDIR(found.st_mode):
        return f"{path} is not a folder: something of uid {found.st_uid} lies in its place"
    if found.st_uid not in trusted:
        return f"{path} belongs to uid {found.st_uid}, who is neither you, the job's user nor root"
    if stat.S_IMODE(found.st_mode) & 0o077:
        return f"{path} is open to other users"
    return None
