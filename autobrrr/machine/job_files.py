"""Files that a process leads us to, read so that nothing in them can stop, hang or fool us.

Only regular files are opened, without waiting; a path is walked inside the process's own root, whatever links
lie on it; and where we are root we look with the rights of the process's user alone, so that it shows us
nothing that it could not read itself. Standard library only, since the injector's own process loads it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from autobrrr.folders import MayNotAct, as_user
from autobrrr.machine import kernel_text, procfs

T = TypeVar("T")

LOOK_S = 2.0  # a file of a network that does not answer holds nobody up for longer
MOST_PARTS, MOST_LINKS = 128, 40


class Unreadable(OSError):
    """A file that is there and is not read: no regular file, somebody else's, or too slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """With whose rights a process looks at files."""

    uid: int
    gid: int
    groups: tuple[int, ...]


def user_of(pid: int, proc: Path = Path("/proc")) -> User:
    """The user of a process.

    Raises:
        Unreadable: it is gone, or runs with two users' rights at once, as no training job does.
    """
    found = procfs.status(pid, proc)
    names = ("Uid", "Gid", "Groups")
    words = (found.get(name, "").split() for name in names)
    uids, gids, groups = ([kernel_text.number(word) for word in row] for row in words)
    if len(set(uids)) != 1 or len(set(gids)) != 1 or uids[0] is None or gids[0] is None:
        raise Unreadable(f"process {pid} runs as no single user")
    return User(uid=uids[0], gid=gids[0], groups=tuple(group for group in groups if group is not None))


@contextmanager
def opened(pid: int, path: str, proc: Path = Path("/proc")) -> Iterator[int]:
    """A descriptor of a regular file, by its path as the process sees it.

    Raises:
        FileNotFoundError: there is no such file.
        Unreadable, OSError: it is no regular file, or not for that user to read.
    """
    fd = _as_user_of(pid, proc, lambda: _open(proc / str(pid) / "root", path))
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def opened_mapping(
    pid: int, span: str, path: str, proc: Path = Path("/proc"), *, unlinked: int | None = None
) -> Iterator[int]:
    """A descriptor of a file that the process has mapped.

    The exact one where the kernel leads to it (whoever has a file mapped can read it), else by its path.

    Args:
        span: The mapping, as its entry in `map_files` is called.
        unlinked: The file's inode, where another one may lie at its path by now: an upgrade replaces files.

    Raises:
        OSError: neither way leads to a regular file that can be read.
    """
    try:
        found = os.open(proc / str(pid) / "map_files" / span, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        fd = _as_user_of(pid, proc, lambda: _open(proc / str(pid) / "root", path))
        wanted = unlinked
    else:
        fd, wanted = _reopened(found, path), None
    try:
        if wanted is not None and os.fstat(fd).st_ino != wanted:
            raise Unreadable(f"{path} was replaced since it was loaded")
        yield fd
    finally:
        os.close(fd)


@contextmanager
def folder(pid: int, path: str, proc: Path = Path("/proc")) -> Iterator[int]:
    """A descriptor (for `dir_fd`) of a folder, by its path as the process sees it.

    Raises:
        OSError: there is none, or it is not for that user.
    """
    fd = _as_user_of(pid, proc, lambda: _walk(proc / str(pid) / "root", path))
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            raise NotADirectoryError(path)
        yield fd
    finally:
        os.close(fd)


def _open(root: Path, path: str) -> int:
    return _reopened(_walk(root, path), path)


def _reopened(found: int, path: str) -> int:
    """A descriptor to read from for one that only names a file; takes `found` over."""
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise Unreadable(f"{path} is no regular file")
        # Without waiting: its user may hold a lease on it.
        return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (BlockingIOError, PermissionError) as error:
        raise Unreadable(f"{path} can't be read: {error.strerror}") from None
    finally:
        os.close(found)


def _walk(root: Path, path: str) -> int:
    """A descriptor that only names what lies at a path below a root; no link leads out of it."""
    above = [os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)]
    waiting, links = _parts(path), 0
    try:
        while waiting:
            part = waiting.pop()
            if part == "..":
                if len(above) > 1:
                    os.close(above.pop())
                continue
            fd = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above[-1])
            if not stat.S_ISLNK(os.fstat(fd).st_mode):
                above.append(fd)
                continue
            try:
                to = os.readlink("", dir_fd=fd)
            finally:
                os.close(fd)
            links += 1
            waiting += _parts(to)
            if links > MOST_LINKS or len(waiting) > MOST_PARTS:
                raise Unreadable(f"{path} leads over too many links")
            if to.startswith("/"):
                while len(above) > 1:
                    os.close(above.pop())
        return above.pop()
    finally:
        for fd in above:
            os.close(fd)


def _parts(path: str) -> list[str]:
    """The parts of a path, last first."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if "\0" in path or len(parts) > MOST_PARTS:
        raise Unreadable("a path of too many parts")
    return parts[::-1]


def _as_user_of(pid: int, proc: Path, look: Callable[[], int]) -> int:
    """Look for a descriptor with the rights of a process's user where we are root.

    Its user's own file systems (FUSE) stay shut, since we go on as root in all but the looking.
    """
    user = user_of(pid, proc)
    if os.geteuid() != 0:
        return look()
    try:
        return as_user(user.uid, user.gid, look, groups=user.groups, answer_s=LOOK_S, late=os.close)
    except TimeoutError:
        raise Unreadable("it does not answer") from None
    except MayNotAct as error:
        raise Unreadable(f"root's rights over files can't be given up: {error.strerror}") from None
