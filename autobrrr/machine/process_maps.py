"""What a process has mapped: `/proc/PID/maps` as records, and the files behind them.

Files are opened through `map_files` (the exact inode, right even if the file was deleted or lives
in another mount namespace) where the kernel allows it, else through the target's own root.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autobrrr.machine import job_files, kernel_text

# A job of a hundred libraries fills 0.4 MiB; of the 65,530 mappings that the kernel allows each may be a
# tensor that is shared by a file.
MOST_BYTES = 32 << 20
# Address range, permissions, offset, device, inode; then the path, which may hold anything but a line's end.
_LINE = re.compile(
    r"([0-9a-f]{1,16})-([0-9a-f]{1,16}) (\S{4}) ([0-9a-f]{1,16}) \S+ ([0-9]{1,20}) *(.*)",
    re.ASCII | re.DOTALL,
)
DELETED = " (deleted)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """One line of `/proc/PID/maps`."""

    start: int
    end: int
    permissions: str
    offset: int
    path: str  # without " (deleted)"; "" for anonymous memory
    unlinked: int | None = None  # the file's inode, where another one may lie at its path by now

    @property
    def name(self) -> str:
        """The file's last path component."""
        return self.path.rsplit("/", 1)[-1]


def read(pid: int, proc: Path = Path("/proc")) -> list[Mapping]:
    """All mappings of a process.

    Raises:
        OSError: the process is gone, or its maps are not for us to read.
    """
    return list(parse(os.fsdecode(kernel_text.read(proc / str(pid) / "maps", MOST_BYTES))))


def mentions(pid: int, name: bytes, proc: Path = Path("/proc")) -> bool:
    """Whether a path that the process has mapped holds these bytes; false where its maps are not for us."""
    return name in (kernel_text.data(proc / str(pid) / "maps", MOST_BYTES) or b"")


def parse(text: str) -> Iterator[Mapping]:
    """The lines of a maps file."""
    for line in text.split("\n"):
        found = _LINE.fullmatch(line)
        if found is not None:
            start, end, permissions, offset, inode, path = found.groups()
            yield Mapping(
                start=int(start, 16),
                end=int(end, 16),
                permissions=permissions,
                offset=int(offset, 16),
                path=path.removesuffix(DELETED),
                unlinked=int(inode) if path.endswith(DELETED) else None,
            )


@contextmanager
def opened(pid: int, mapping: Mapping, proc: Path = Path("/proc")) -> Iterator[int]:
    """A descriptor of the mapped file, to read from.

    The exact one where the kernel leads to it (whoever has a file mapped can read it), else by its path.

    Raises:
        OSError: no way leads to a regular file that the process's user may read, or it was replaced since.
    """
    span = f"{mapping.start:x}-{mapping.end:x}"
    try:
        found, wanted = os.open(proc / str(pid) / "map_files" / span, os.O_PATH | os.O_CLOEXEC), None
    except OSError:
        found, wanted = job_files.open_in(pid, mapping.path, os.O_PATH, proc), mapping.unlinked
    fd = job_files.readable(found, mapping.path)
    try:
        if wanted is not None and os.fstat(fd).st_ino != wanted:  # an upgrade puts another file at its path
            raise job_files.Unreadable(f"{mapping.path} was replaced since it was loaded")
        yield fd
    finally:
        os.close(fd)
