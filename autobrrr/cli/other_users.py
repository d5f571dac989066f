"""The jobs of other users, as root lists them: each user's by a process that has become that user.

What a user's file systems do to whoever looks holds up that process, which is given up on. Run as a module it
is that process: it goes through the door of one job, and runs a verb.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from autobrrr import cli, own_modules
from autobrrr.attach import door
from autobrrr.attach.bundle import code_bundle
from autobrrr.machine import procfs
from autobrrr.records import JobLine

ANSWER_S = 15.0
MOST_BYTES = 4 << 20
AT_ONCE = 8


def owner_elsewhere(pid: int) -> int | None:
    """Whose process it is, where that is not for this one to look at closely."""
    owner = procfs.owner(pid) if os.geteuid() == 0 else None
    return owner[0] if owner is not None and owner[0] != 0 else None


def listed(pids_of: Mapping[int, Sequence[int]]) -> list[JobLine]:
    """The jobs among these processes, by user."""
    if not pids_of:
        return []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [line for lines in pool.map(_of_user, pids_of.values()) for line in lines]


def _of_user(pids: Sequence[int]) -> list[JobLine]:
    try:
        done = code_bundle.run_bounded(
            own_modules.command("autobrrr.cli.other_users", str(pids[0]), "ls", "--json"),
            input=b"",
            timeout=ANSWER_S,
            most_bytes=MOST_BYTES,
            env=own_modules.environment(),
            cwd="/",
        )
        found = msgspec.convert(json.loads(done.stdout)["jobs"], list[JobLine])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return [_unseen(pid) for pid in pids]
    return [line for line in found if line.pid in pids]


def _unseen(pid: int) -> JobLine:
    why = "it can't be looked at: its user's files don't answer"
    return JobLine(pid=pid, script=None, rank=None, torch=None, attached=False, attachable=False, why=why)


if __name__ == "__main__":
    door.go_through(int(sys.argv[1]))
    sys.exit(cli.main(sys.argv[2:]))
