"""What an `autobrrr run` and its agents left in the runtime folder when they were killed.

In: the runtime folder. Out: it without the folders of runs that nobody supervises and no process was started
with, and without the sockets of agents whose process has ended. Nothing is raised.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Callable
from pathlib import Path

from autobrrr import folders, paths
from autobrrr.machine import procfs

VARIABLE = "AUTOBRRR_BOOT"  # in the environment of whatever a run has started: the path of its folder
YOUNG_S = 60.0  # its maker may not have locked it yet
MOST_SWEPT = 64
_RUN = re.compile(r"run-[0-9a-f]{16}(\.gone)?")
_SOCKET = re.compile(r"agent-(\d{1,10})-(\d{1,20})\.sock")


def sweep(runtime: Path, proc: Path = procfs.PROC, now_s: Callable[[], float] = time.time) -> list[str]:
    """Take away what is left there; returns the names."""
    if paths.objection_to(runtime) is not None:
        return []
    try:
        fd = os.open(runtime, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        names = os.listdir(fd)
        removed = [name for name in names if _socket(runtime / name, proc)]
        runs = [name for name in names if _RUN.fullmatch(name)][:MOST_SWEPT]
        old = [name for name in runs if _age_s(runtime / name, now_s()) > YOUNG_S]
        used = _used(proc) if old else set()
        return removed + [name for name in old if str(runtime / name) not in used and _run(fd, name)]
    finally:
        os.close(fd)


def _age_s(run: Path, now_s: float) -> float:
    try:
        found = run.lstat()
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


def _run(runtime: int, name: str) -> bool:
    try:
        return folders.remove_unheld(runtime, name)
    except OSError:
        return False


def _socket(path: Path, proc: Path) -> bool:
    found = _SOCKET.fullmatch(path.name)
    if found is None or procfs.is_alive(int(found[1]), int(found[2]), proc):
        return False
    with contextlib.suppress(OSError):
        try:
            folders.connect(path).close()
        except ConnectionRefusedError:  # else it is alive in another container
            path.unlink()
            return True
    return False
