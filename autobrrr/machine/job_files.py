"""Files that a process leads us to: looked up inside its own root over no link, plain files only.

Standard library only, since the tracer loads it.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from autobrrr.folders import NotPlain, reopened


class Unreadable(OSError):
    """A file that is there and is not read: no regular file, somebody else's, or another than was mapped."""


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


def readable(found: int, path: str) -> int:
    """A descriptor to read from for one that names a regular file, which it takes over.

    Raises:
        Unreadable, OSError: it is no regular file, or not for us to read.
    """
    try:
        return reopened(found)
    except (NotPlain, IsADirectoryError):
        raise Unreadable(f"{path} is no regular file") from None
    except (BlockingIOError, PermissionError) as error:
        raise Unreadable(f"{path} can't be read: {error.strerror}") from None
