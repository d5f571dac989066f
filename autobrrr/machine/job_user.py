"""Whose rights a job runs with, and how this process takes them, for good.

In: a pid. Out: this process with the uid, gid, groups and capabilities of that job, and a bit of root's where
it is asked for. Standard library only, since the tracer loads it.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path
from typing import NamedTuple

from autobrrr.machine import kernel_text, procfs

# What tracing takes: the right itself, and to see filters of system calls that would kill the job for ours.
TRACING = 1 << 19 | 1 << 21  # CAP_SYS_PTRACE, CAP_SYS_ADMIN
_SET_DUMPABLE, _SET_KEEPCAPS, _SET_NO_NEW_PRIVS = 4, 8, 38
_CAPABILITY_VERSION_3 = 0x20080522


class JobUser(NamedTuple):
    """With whose rights a process runs."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    capabilities: int
    is_of_our_users: bool  # else its capabilities count in its own user namespace only

    @property
    def counting(self) -> int:
        """Its capabilities, as far as they count for us."""
        return self.capabilities if self.is_of_our_users else 0


def of(pid: int, proc: Path = procfs.PROC) -> JobUser | None:
    """The user of a process; None where it is gone, or runs with the rights of two users at once."""
    found = procfs.status(pid, proc)
    words = (found.get(name, "").split() for name in ("Uid", "Gid", "Groups"))
    uids, gids, groups = ([kernel_text.number(word) for word in row] for row in words)
    if len(set(uids)) != 1 or len(set(gids)) != 1 or uids[0] is None or gids[0] is None:
        return None
    return JobUser(
        uid=uids[0],
        gid=gids[0],
        groups=tuple(group for group in groups if group is not None),
        capabilities=kernel_text.number(found.get("CapPrm"), 16) or 0,
        is_of_our_users=namespace(pid, "user", proc) == namespace(os.getpid(), "user", proc),
    )


def namespace(pid: int | str, kind: str, proc: Path = procfs.PROC) -> str | None:
    """The name of a namespace of a process; None where it is not for us."""
    return kernel_text.link(proc / str(pid) / "ns" / kind)


def become(user: JobUser, capabilities: int) -> None:
    """Take a user's rights, and no others than these capabilities of our own; there is no way back.

    Nothing that is executed from here on gets more, and no process of that user may look into this one, which
    holds root's terminal and what root's environment said.

    Raises:
        OSError: this process may not.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _made(libc.prctl(_SET_KEEPCAPS, 1, 0, 0, 0))
    os.setgroups(user.groups)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    own = kernel_text.number(procfs.status(os.getpid()).get("CapPrm"), 16) or 0
    low, high = (capabilities & own & 0xFFFFFFFF, (capabilities & own) >> 32)
    header = struct.pack("<Ii", _CAPABILITY_VERSION_3, 0)
    _made(libc.capset(header, struct.pack("<6I", low, low, 0, high, high, 0)))
    _made(libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _made(libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0))


def _made(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
