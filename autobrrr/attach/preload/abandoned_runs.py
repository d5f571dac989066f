"""What an `autobrrr run` and its agents left in the runtime folder when they were killed.

In: the runtime folder. Out: it without the folders of runs that nobody supervises and no process was started
with, and without the sockets of agents whose process has ended. Nothing is raised.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path

from autobrrr.errors import AutobrrrError
from autobrrr.folders import Folder, remove_unheld
from autobrrr.machine import procfs

VARIABLE = "AUTOBRRR_BOOT"  # in the environment of whatever a run has started: the path of its folder
YOUNG_S = 60.0  # its maker may not have locked it yet
MOST_SWEPT = 64
_RUN = re.compile(r"run-[0-9a-f]{16}(\.gone)?")
_SOCKET = re.compile(r"agent-(\d{1,10})-(\d{1,20})\.sock")


def sweep(runtime: Path, proc: Path = procfs.PROC, now_s: Callable[[], float] = time.time) -> list[str]:
    """Take away what is left there; returns the names."""
    removed: list[str] = []
    with contextlib.suppress(OSError, AutobrrrError):
        folder = Folder.existing(runtime, os.geteuid(), (os.geteuid(),))
        if folder is not None:
            with folder:
                names = folder.names()
                removed += [name for name in names if _SOCKET.fullmatch(name) and _socket(folder, name, proc)]
                removed += _runs(folder, [name for name in names if _RUN.fullmatch(name)], proc, now_s())
    return removed


def _runs(folder: Folder, names: list[str], proc: Path, now_s: float) -> list[str]:
    old = [name for name in names[:MOST_SWEPT] if _age_s(folder, name, now_s) > YOUNG_S]
    used = _used(proc) if old else set()
    return [name for name in old if f"{folder.path}/{name}" not in used and _run(folder, name)]


def _age_s(folder: Folder, name: str, now_s: float) -> float:
    try:
        found = os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
    except OSError:
        return 0.0
    return now_s - found.st_mtime if stat.S_ISDIR(found.st_mode) else 0.0


def _used(proc: Path) -> set[str]:
    """Folders that a process was started with."""
    return {
        str(found[VARIABLE].raw)
        for pid in procfs.pids(proc)
        if VARIABLE in (found := procfs.environ(pid, (VARIABLE,), proc))
    }


def _run(folder: Folder, name: str) -> bool:
    try:
        return remove_unheld(folder.fd, name, folder.uid, folder.gid)
    except OSError:
        return False


def _socket(folder: Folder, name: str, proc: Path) -> bool:
    found = _SOCKET.fullmatch(name)
    if found is None or procfs.is_alive(int(found[1]), int(found[2]), proc):
        return False
    with socket.socket(socket.AF_UNIX) as link, contextlib.suppress(OSError):
        link.settimeout(1.0)
        try:
            link.connect(f"/proc/self/fd/{folder.fd}/{name}")
        except ConnectionRefusedError:  # else it is alive in another container
            folder.remove(name)
            return True
    return False
