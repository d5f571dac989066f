"""The jobs of other users, as root lists them: each user's by `ls` in a process that has become that user.

What a user's file systems do to whoever looks holds up that process, which is given up on.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from autobrrr import own_modules
from autobrrr.attach.job_python import run_bounded
from autobrrr.machine import kernel_text, procfs
from autobrrr.records import JobLine

USER_OF = "AUTOBRRR_USER_OF"  # in the environment of such an `ls`: a job of the user that it becomes
ANSWER_S = 15.0
AT_ONCE = 8


class OtherUsers:
    """Collects what may be their jobs, by user."""

    def __init__(self) -> None:
        self._pids: dict[int, list[int]] = {}

    def take(self, pid: int) -> bool:
        """Whether it is somebody else's, and not for root to look at."""
        real = kernel_text.number([*procfs.status(pid).get("Uid", "").split(), ""][0])
        if os.geteuid() != 0 or not real:
            return False
        self._pids.setdefault(real, []).append(pid)
        return True

    def listed(self) -> list[JobLine]:
        """The jobs among them."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return [line for lines in pool.map(_of_user, self._pids.values()) for line in lines]


def _of_user(pids: Sequence[int]) -> list[JobLine]:
    try:
        done = run_bounded(
            own_modules.command("autobrrr", "ls", "--json"),
            input=b"",
            timeout=ANSWER_S,
            env={**own_modules.environment(), USER_OF: str(pids[0])},
            cwd="/",
        )
        found = msgspec.convert(json.loads(done.stdout)["jobs"], list[JobLine])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        rest = dict.fromkeys(("script", "rank", "torch"), None) | {"attached": False, "attachable": False}
        why = "it can't be looked at: its user's files don't answer"
        return [msgspec.convert({"pid": pid, "why": why, **rest}, JobLine) for pid in pids]
    return [line for line in found if line.pid in pids]
