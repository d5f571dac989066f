"""Files that the user has named, which may lie in folders of others: written, checked and removed by root.

In: a path. Where others than root decide what lies there, root goes over links of its own alone, waits at no
pipe, and works in the folder that it has come to so.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from autobrrr import paths
from autobrrr.errors import UsageError
from autobrrr.folders import walk


def open_named(path: Path | str, *, keep: bool = False, new: bool = False) -> int:
    """A descriptor to write a file anew that the user has named.

    With `keep`, what is there stays as far as it is not written over; with `new`, nothing may be there.
    Where others than root decide what lies there, root follows no link and waits at no pipe.

    Raises:
        UsageError: one of these lies there.
        OSError: it can't be written.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (0 if keep else os.O_TRUNC)
    flags |= os.O_EXCL if new else 0
    if not _others_decide(path):
        return os.open(path, flags, 0o666)
    with _named(path) as (above, name):
        try:
            return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666, dir_fd=above)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENXIO):
                raise
            raise _no_plain_file(path, is_link=error.errno == errno.ELOOP) from None


def check_named(path: Path | str) -> None:
    """Whether `open_named` will take a path, before there is anything to be written.

    Raises:
        UsageError: it won't.
        OSError: there is no such folder.
    """
    if not _others_decide(path):
        return
    with _named(path) as (above, name), contextlib.suppress(FileNotFoundError):
        mode = os.stat(name, dir_fd=above, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode) or stat.S_ISFIFO(mode):
            raise _no_plain_file(path, is_link=stat.S_ISLNK(mode))


def remove_named(path: Path | str) -> None:
    """Take away a file that `open_named` has made, and no other. Raises as it does."""
    if not _others_decide(path):
        os.unlink(path)
        return
    with _named(path) as (above, name):
        os.unlink(name, dir_fd=above)


def _others_decide(path: Path | str) -> bool:
    return os.geteuid() == 0 and not paths.is_roots(Path(path).absolute())


@contextlib.contextmanager
def _named(path: Path | str) -> Iterator[tuple[int, str]]:
    """The folder of a file that the user has named, and its name in it."""
    whole = os.path.abspath(path)
    try:
        above = _walk_from_top(os.path.dirname(whole))
    except NotADirectoryError:  # what O_NOFOLLOW says of a link to a folder
        raise UsageError(
            f"{path} lies behind a link, or a file, that others than root may have put there",
            "name the file by its real path",
        ) from None
    try:
        yield above, os.path.basename(whole)
    finally:
        os.close(above)


def _no_plain_file(path: Path | str, *, is_link: bool) -> UsageError:
    what = "a link" if is_link else "a pipe"
    return UsageError(f"{path} is {what} that others than root may have put there", "name another file")


def _walk_from_top(folder: str) -> int:
    """A folder by its path: over links as far as root alone decides what lies there, from there on none."""
    path = Path(folder)
    top = next((each for each in (path, *path.parents) if paths.is_roots(each)), Path("/"))
    root = os.open(top, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return walk(root, str(path.relative_to(top)))
    finally:
        os.close(root)
