"""Files that the user has named for what a verb finds: looked at before the work begins, written after it."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from autobrrr.errors import AutobrrrError, UsageError

# Of file systems that reserve nothing (NFS 3, FUSE): glibc would read the file, which is open for writing.
_NOT_RESERVED = (errno.EBADF, errno.EOPNOTSUPP)


def check_places(*targets: Path | str | None) -> None:
    """Whether a file can come to be at each place that was named.

    Raises:
        UsageError: a folder is not there, or a file's name is a folder's.
    """
    for target in targets:
        if not target:
            continue
        path = Path(target).absolute()
        if not path.parent.is_dir():
            raise UsageError(f"the folder of {target} does not exist", "create it first")
        if path.is_dir():
            raise UsageError(f"{target} is a folder", "name a file in it")


def write_file(
    target: Path | str, text: str, hint: str = "", *, failure: type[AutobrrrError] = AutobrrrError
) -> None:
    """Write a file anew, or leave it as it was where the disk has no room for it.

    Raises:
        AutobrrrError: it can't be written; as `failure`, with this hint.
    """
    data, is_new = text.encode(), not os.path.lexists(target)
    try:
        with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666), "wb") as file:
            _reserve(file.fileno(), len(data))
            file.write(data)
            file.flush()
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                file.truncate()
    except OSError as error:
        if is_new:
            with suppress(OSError):
                os.unlink(target)
        raise failure(f"{target} could not be written: {error.strerror}", hint) from None


def _reserve(fd: int, size: int) -> None:
    """Take the room before what is there is written over. Raises OSError where there is none."""
    try:
        if size and stat.S_ISREG(os.fstat(fd).st_mode):
            os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno not in _NOT_RESERVED:
            raise
