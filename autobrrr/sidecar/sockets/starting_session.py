"""Whether a session is on its way: its lock is held, and its socket does not answer yet.

The lock is only looked for, in the kernel's list: whoever tried to take it could keep the session out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from autobrrr.machine import procfs
from autobrrr.sidecar.sockets.session_socket import SessionTarget, folders


def is_under_way(
    target: SessionTarget, env: Mapping[str, str] = os.environ, proc: Path = procfs.PROC
) -> bool:
    """Whether a process that can be seen from here holds the lock of a job's session."""
    files = {name for folder in folders(target, env) if (name := _file(folder / f"{target.name}.lock"))}
    try:
        lines = (proc / "locks").read_text().split("\n") if files else []
    except OSError:
        return False
    return any(_held(line) in files for line in lines)


def _file(path: Path) -> int | None:
    """Its inode alone: layered file systems show another device in the list than to who asks for a file."""
    try:
        return path.lstat().st_ino
    except OSError:
        return None


def _held(line: str) -> int | None:
    """The inode of `1: FLOCK  ADVISORY  WRITE 4242 08:01:1234 0 EOF`; None for who waits, or another kind."""
    words = line.split()
    if len(words) < 6 or words[1] != "FLOCK":
        return None
    return int(words[5].rpartition(":")[2])
