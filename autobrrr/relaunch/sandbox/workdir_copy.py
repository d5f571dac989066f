"""A bounded copy of the working folder, for a trial where no overlay can be had.

In: the folder, an empty place, a limit. Out: the copy, and what of the folder was too large for it and is
shown read-only instead. Standard library only; runs in the keeper. A real copy: a link would let the
trial write into the user's file.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

MOST_FILES = 100_000
NEVER_COPIED = (".git", ".hg", ".svn")


class TooLarge(Exception):
    """The folder is no candidate for a copy; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    """What is copied of a folder. `read_only` are folders below it, as relative paths."""

    folder: str
    read_only: tuple[str, ...]
    files: int
    bytes: int


@dataclass(slots=True)
class _Weight:
    files: int = 0
    bytes: int = 0
    below: dict[str, _Weight] = field(default_factory=dict)


def plan(folder: str, limit_bytes: int, most_files: int = MOST_FILES, *, apart: str = "") -> CopyPlan:
    """Choose what is copied: all but version control and other mounts, then all but the largest folders.

    Args:
        apart: Never copied: where copies lie, which may be below the folder itself.

    Raises:
        TooLarge: even without its folders there is too much.
    """
    device = os.stat(folder).st_dev
    top = _Weight()
    fixed: list[str] = []
    for here, folders, files in os.walk(folder):
        inside = os.path.relpath(here, folder)
        first = inside.split(os.sep)[0]
        weight = top if first == "." else top.below.setdefault(first, _Weight())
        for name in list(folders):
            path = os.path.join(here, name)
            foreign = not os.path.islink(path) and os.stat(path).st_dev != device
            if foreign or path == apart or (here == folder and name in NEVER_COPIED):
                folders.remove(name)
                fixed.append(os.path.relpath(path, folder))
        for name in files:
            found = os.lstat(os.path.join(here, name))
            weight.files += 1
            weight.bytes += found.st_size if stat.S_ISREG(found.st_mode) else 0
    shut: list[str] = []
    by_size = sorted(
        top.below,
        key=lambda name: max(top.below[name].bytes / max(1, limit_bytes), top.below[name].files / most_files),
    )
    while by_size and _total(top, by_size, limit_bytes, most_files) is None:
        shut.append(by_size.pop())
    total = _total(top, by_size, limit_bytes, most_files)
    if total is None:
        raise TooLarge(
            f"{folder} is too large to copy: {top.files} files, {top.bytes >> 20} MiB besides its folders"
        )
    kept = [path for path in fixed if path.split(os.sep)[0] not in shut]
    return CopyPlan(folder=folder, read_only=tuple(sorted([*kept, *shut])), files=total[0], bytes=total[1])


def copy(chosen: CopyPlan, place: str) -> Mapping[str, tuple[int, int]]:
    """Copy into an empty folder; what is shown read-only gets an empty folder to be mounted on.

    Returns:
        Size and time of every file of the copy, by its relative path.

    Raises:
        OSError: it can't be written, or something can't be read.
    """
    known: dict[str, tuple[int, int]] = {}
    for source, path in _files(chosen):
        target = os.path.join(place, path)
        found = os.lstat(source)
        if stat.S_ISDIR(found.st_mode):
            os.makedirs(target, exist_ok=True)
            os.chmod(target, stat.S_IMODE(found.st_mode) | stat.S_IRWXU)
        elif stat.S_ISLNK(found.st_mode):
            os.symlink(os.readlink(source), target)
        elif stat.S_ISREG(found.st_mode):
            shutil.copy2(source, target)
            known[path] = found.st_size, found.st_mtime_ns
        if os.geteuid() == 0 and os.path.lexists(target):
            os.lchown(target, found.st_uid, found.st_gid)
    return known


def remove(place: str) -> None:
    """Take a copy away, also what the trial made unwritable."""
    for here, folders, _ in os.walk(place):
        for name in folders:
            path = os.path.join(here, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    shutil.rmtree(place, ignore_errors=True)


def told(chosen: CopyPlan) -> str:
    """One line for people."""
    shown = f"; {', '.join(each + '/' for each in chosen.read_only)} read-only" if chosen.read_only else ""
    return f"a copy of {chosen.folder} ({chosen.files} files, {chosen.bytes / (1 << 20):.1f} MiB{shown})"


def _total(top: _Weight, names: list[str], limit_bytes: int, most_files: int) -> tuple[int, int] | None:
    """Files and bytes with these folders; None where that is too much."""
    files = top.files + sum(top.below[name].files for name in names)
    size = top.bytes + sum(top.below[name].bytes for name in names)
    return (files, size) if files <= most_files and size <= limit_bytes else None


def _files(chosen: CopyPlan) -> Iterator[tuple[str, str]]:
    """Everything below the folder with its relative path, each folder before what it holds."""
    for here, folders, files in os.walk(chosen.folder):
        inside = os.path.relpath(here, chosen.folder)
        prefix = "" if inside == "." else inside + os.sep
        for name in folders + files:
            yield os.path.join(here, name), prefix + name
        folders[:] = [name for name in folders if prefix + name not in chosen.read_only]
