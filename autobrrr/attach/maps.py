"""What a process has mapped: `/proc/PID/maps` as records, and the files behind them.

Files are opened through `map_files` (the exact inode, right even if the file was deleted or lives
in another mount namespace) where the kernel allows it, else through the target's own root.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

DELETED = " (deleted)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """One line of `/proc/PID/maps`."""

    start: int
    end: int
    permissions: str
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
    return parse((proc / str(pid) / "maps").read_text(errors="replace"))


def parse(text: str) -> list[Mapping]:
    """The lines of a maps file."""
    found = []
    for line in text.splitlines():
        fields = line.split(None, 5)
        if len(fields) < 5:
            continue
        start, _, end = fields[0].partition("-")
        found.append(
            Mapping(
                start=int(start, 16),
                end=int(end, 16),
                permissions=fields[1],
                offset=int(fields[2], 16),
                path=fields[5].removesuffix(DELETED) if len(fields) == 6 else "",
            )
        )
    return found


def file_paths(pid: int, mapping: Mapping, proc: Path = Path("/proc")) -> tuple[Path, Path]:
    """Where the mapped file can be opened, best first."""
    folder = proc / str(pid)
    span = f"{mapping.start:x}-{mapping.end:x}"
    return folder / "map_files" / span, folder / "root" / mapping.path.lstrip("/")


def open_file(pid: int, mapping: Mapping, proc: Path = Path("/proc")) -> int:
    """Open the mapped file for reading; returns a file descriptor.

    Raises:
        OSError: neither way in leads to the file.
    """
    exact, by_path = file_paths(pid, mapping, proc)
    try:
        return os.open(exact, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return os.open(by_path, os.O_RDONLY | os.O_CLOEXEC)
