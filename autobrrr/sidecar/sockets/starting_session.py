"""Whether a session is on its way: its lock is held, and its socket does not answer yet.

The lock is only looked for, in the kernel's list: whoever tried to take it could keep the session out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from autobrrr.machine import kernel_text, procfs
from autobrrr.sidecar.sockets.session_socket import SessionTarget, places

MOST_BYTES = 1 << 24  # of the list: others may hold many locks


def is_under_way(
    target: SessionTarget, env: Mapping[str, str] = os.environ, proc: Path = procfs.PROC
) -> bool:
    """Whether a process that can be seen from here holds the lock of a job's session."""
    files = {name for folder in places(target, env) if (name := _file(folder / f"{target.name}.lock", proc))}
    return bool(files) and any(_held(line) in files for line in kernel_text.lines(proc / "locks", MOST_BYTES))


def _file(path: Path, proc: Path) -> tuple[str, int] | None:
    """The device of its mount, and its inode: as the kernel's list has them.

    Not the device that who asks for a file is shown: layered file systems make one up.
    """
    try:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        mount = re.search(r"^mnt_id:\s+(\d+)$", kernel_text.text(proc / f"self/fdinfo/{fd}") or "", re.M)
        inode = os.fstat(fd).st_ino
    finally:
        os.close(fd)
    mounts = (line.split(" ", 3) for line in kernel_text.lines(proc / "self/mountinfo"))
    device = next((each[2] for each in mounts if mount is not None and each[0] == mount[1]), None)
    return None if device is None else (_numbers(device), inode)


def _held(line: str) -> tuple[str, int] | None:
    """What `1: FLOCK  ADVISORY  WRITE 4242 08:01:1234 0 EOF` locks; None for who waits, or another kind."""
    words = line.split()
    if len(words) < 6 or words[1] != "FLOCK":
        return None
    device, _, inode = words[5].rpartition(":")
    number = kernel_text.number(inode)
    return None if number is None else (_numbers(device, 16), number)


def _numbers(device: str, base: int = 10) -> str:
    """A device as `MAJOR:MINOR`; the list of locks has both in base 16."""
    return ":".join(str(kernel_text.number(part, base)) for part in device.split(":"))
