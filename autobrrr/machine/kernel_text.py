"""What the kernel says of other processes (`/proc`): read up to a bound, taken apart as the kernel wrote it.

A process chooses its name, its command line and the paths that it maps: they may hold whatever Python takes
for the end of a line or for a digit, and be millions of characters long. Standard library only, since the
injector's own process loads it.
"""

from __future__ import annotations

import os
from pathlib import Path

MOST_BYTES = 1 << 20
_PIECE_BYTES = 1 << 16


def number(text: str | bytes | None, base: int = 10) -> int | None:
    """A whole number in ASCII; None where the text is none.

    Args:
        base: 10 or 16.
    """
    try:
        return int(text, base) if text is not None and text.isascii() else None
    except ValueError:
        return None


def read(path: Path | str, most_bytes: int = MOST_BYTES) -> bytes:
    """The first bytes of a file.

    Raises:
        OSError: it is gone or not for us.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        parts, left = [], most_bytes
        while left > 0 and (part := os.read(fd, min(left, _PIECE_BYTES))):
            parts.append(part)
            left -= len(part)
    finally:
        os.close(fd)
    return b"".join(parts)


def data(path: Path | str, most_bytes: int = MOST_BYTES) -> bytes | None:
    """The first bytes of a file; None where it is gone or not for us."""
    try:
        return read(path, most_bytes)
    except OSError:
        return None


def text(path: Path | str, most_bytes: int = MOST_BYTES) -> str | None:
    """The same as text; bytes that are no UTF-8 stay apart, so that a path in it still leads to its file."""
    found = data(path, most_bytes)
    return None if found is None else os.fsdecode(found)


def link(path: Path) -> str | None:
    """Where a link leads; None where it is gone or not for us."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def names(folder: Path) -> list[str]:
    """What a folder holds; nothing where it is gone or not for us."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def lines(path: Path | str, most_bytes: int = MOST_BYTES) -> list[str]:
    """The lines as the kernel ends them; `splitlines` would also end them where a process wants it to."""
    found = text(path, most_bytes)
    return found.split("\n") if found else []
