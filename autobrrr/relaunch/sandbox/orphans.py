"""Processes that belong to a trial, found by a word in their environment; the last resort of tidiness.

The keeper of a trial ends all of it, or its guard does. Where both were killed, the study, or the next one,
finds what is left by the token and ends it.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import stat
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from autobrrr.machine import procfs
from autobrrr.machine.kernel_text import number
from autobrrr.relaunch.sandbox import workdir_copy

VARIABLE = "AUTOBRRR_TRIAL"
FOLDER_PREFIX = "study-"
PATIENCE_S = 5.0


def new_token(proc: Path = procfs.PROC) -> str:
    """Names the study's process, so that others can tell whether it still lives."""
    return f"{own_name(proc)}-{secrets.token_hex(8)}"


def own_name(proc: Path = procfs.PROC) -> str:
    """This process, beyond doubt: its pid, when it started, the machine and namespace that count so."""
    return f"{os.getpid()}-{procfs.start_ticks(os.getpid(), proc)}-{_counting(proc)}"


def is_gone(token: str, proc: Path = procfs.PROC) -> bool:
    """Whether the process that made a token, or that `own_name` named, has surely ended.

    Of what was named in another container, or on another machine that shares a folder, nothing is sure.
    """
    parts = token.split("-")
    pid = number(parts[0])
    if len(parts) < 3 or pid is None or parts[2] != str(_counting(proc)):
        return False
    return str(procfs.start_ticks(pid, proc)) != parts[1]


def found(token: str | None = None, proc: Path = procfs.PROC) -> Iterator[tuple[int, str]]:
    """Processes of a trial, or of all trials, with their token."""
    for pid in procfs.pids(proc):
        carried = procfs.environ(pid, (VARIABLE,), proc).get(VARIABLE)
        if carried is not None and token in (None, carried.raw):
            yield pid, carried.raw


def end(token: str) -> int:
    """Kill what is left of one trial; how many processes that were."""
    ended: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    while left := [pid for pid, _ in found(token)]:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        ended.update(left)
        if time.monotonic() > deadline:
            break
        time.sleep(0.005)
    return len(ended)


def sweep(*places: Path) -> int:
    """End trials whose study is gone, take away the folders that it left; how many processes that were."""
    count = 0
    for pid, token in list(found()):
        if is_gone(token):
            try:
                os.kill(pid, signal.SIGKILL)
                count += 1
            except (ProcessLookupError, PermissionError):
                pass
    for place in places:
        for folder in place.glob(f"{FOLDER_PREFIX}*"):
            if is_gone(folder.name.removeprefix(FOLDER_PREFIX)) and _is_own(folder):
                workdir_copy.remove(str(folder))
    return count


def _is_own(folder: Path) -> bool:
    """Where everybody may write, somebody else may have put a link of that name."""
    try:
        found = os.lstat(folder)
    except OSError:  # another study has just taken it away
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _counting(proc: Path) -> int:
    """Who counts pids: a machine's namespace; the first one has the same inode on every machine."""
    try:
        namespace = os.stat(proc / "self/ns/pid").st_ino
    except OSError:
        namespace = 0
    return zlib.crc32(f"{socket.gethostname()} {namespace}".encode())
