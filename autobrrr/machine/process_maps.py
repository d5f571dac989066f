"""What a process has mapped: `/proc/PID/maps` as records."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autobrrr.machine import kernel_text

# A job of a hundred libraries fills 0.4 MiB; of the 65,530 mappings that the kernel allows each may be a
# tensor that is shared by a file.
MOST_BYTES = 32 << 20
# Address range, offset; then the path, which may hold anything but a line's end.
_LINE = re.compile(
    r"([0-9a-f]{1,16})-([0-9a-f]{1,16}) \S{4} ([0-9a-f]{1,16}) \S+ [0-9]{1,20} *(.*)", re.ASCII | re.DOTALL
)
DELETED = " (deleted)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """One line of `/proc/PID/maps`."""

    start: int
    end: int
    offset: int
    path: str  # without " (deleted)"; "" for anonymous memory

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
            start, end, offset, path = found.groups()
            yield Mapping(
                start=int(start, 16),
                end=int(end, 16),
                offset=int(offset, 16),
                path=path.removesuffix(DELETED),
            )
