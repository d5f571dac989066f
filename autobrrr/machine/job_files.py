"""Files that a process leads us to, read so that nothing in them can stop, hang or fool us.

Only regular files are opened, without waiting; a path is looked up inside the process's own root, whatever
links lie on it. Standard library only, since the tracer loads it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autobrrr.folders import NotPlain, open_beneath, reopened


class Unreadable(OSError):
    """A file that is there and is not read: no regular file, somebody else's, or another than was mapped."""


@contextmanager
def opened(pid: int, path: str, proc: Path = Path("/proc")) -> Iterator[int]:
    """A descriptor of a regular file, by its path as the process sees it.

    Raises:
        FileNotFoundError: there is no such file.
        Unreadable, OSError: it is no regular file, or not for us to read.
    """
    fd = readable(named(pid, path, proc), path)
    try:
        yield fd
    finally:
        os.close(fd)


def open_in(pid: int, path: str, flags: int, proc: Path = Path("/proc")) -> int:
    """A descriptor of what lies at a path as a process sees it. Raises OSError."""
    root = os.open(proc / str(pid) / "root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return open_beneath(root, path, flags)
    finally:
        os.close(root)


def named(pid: int, path: str, proc: Path) -> int:
    """A descriptor that only names a file, by its path as a process sees it. Raises OSError."""
    return open_in(pid, path, os.O_PATH, proc)


def readable(found: int, path: str) -> int:
    """One to read from, where that is a regular file; takes `found` over. Raises Unreadable, OSError."""
    try:
        return reopened(found)
    except (NotPlain, IsADirectoryError):
        raise Unreadable(f"{path} is no regular file") from None
    except (BlockingIOError, PermissionError) as error:
        raise Unreadable(f"{path} can't be read: {error.strerror}") from None
