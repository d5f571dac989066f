"""`autobrrr ls`: training jobs of this machine, which of them are attached, which could be.

As root it lists the jobs of other users: each user's by `ls` in a process that has become that user. What a
user's file systems do to whoever looks holds up that process, which is given up on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import msgspec

from autobrrr import own_modules
from autobrrr.attach import door, job_listing
from autobrrr.attach.job_python import run_bounded
from autobrrr.cli.printed import NARRATOR, columns, narrate, show
from autobrrr.client import all_ranks, each_rank
from autobrrr.errors import AutobrrrError
from autobrrr.machine import kernel_text, procfs
from autobrrr.quantities import duration_words
from autobrrr.records import SCHEMA, JobLine
from autobrrr.report import page_model
from autobrrr.report.next_step import after_listing
from autobrrr.report.page_text import table_text
from autobrrr.sidecar.sockets.session_socket import find_target, is_under_way, passed_over

USER_OF = "AUTOBRRR_USER_OF"  # in the environment of such an `ls`: a job of the user that it becomes
ANSWER_S = 15.0
AT_ONCE = 8
HEADS = ("PID", "USER", "RANK", "TORCH", "#CPU", "#RSS", "#AGE", "STATE", "SCRIPT")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    if USER_OF in os.environ:
        door.go_through(int(os.environ.pop(USER_OF)))
    lines = jobs()
    for line in passed_over():
        narrate(line)
    if args.json:
        print(json.dumps({"schema": SCHEMA, "jobs": [msgspec.to_builtins(line) for line in lines]}))
    else:
        show(table(lines, columns()))
        shut = next((line.pid for line in lines if not (line.attached or line.attachable)), None)
        if shut is not None:
            narrate(f"autobrrr doctor {shut} says why a job is not ready")
        NARRATOR.next_step(after_listing(lines))
    return 0


def jobs() -> list[JobLine]:
    """The training jobs of this machine as they are now."""
    others: dict[int, list[int]] = {}  # what may be jobs, by user

    def take(pid: int) -> bool:
        """Whether it is somebody else's, and not for root to look at."""
        real = kernel_text.number([*procfs.status(pid).get("Uid", "").split(), ""][0])
        if os.geteuid() != 0 or not real:
            return False
        others.setdefault(real, []).append(pid)
        return True

    found = [_line(each) for each in job_listing.find(left=take)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for lines in pool.map(_of_user, others.values()):
            found += lines
    attached: dict[str, list[int]] = {}
    for line in found:
        if line.attached and line.job is not None:
            attached.setdefault(line.job, []).append(line.pid)
    slow = _slowest(pids for pids in attached.values() if len(pids) > 1)
    found = [msgspec.structs.replace(line, slowest=slow.get(line.pid)) for line in found]
    return sorted(found, key=lambda line: line.pid)


def table(lines: list[JobLine], width: int | None = None) -> str:
    """The list for people; CPU is the mean since the start, of one core."""
    if not lines:
        return "no training job runs on this machine, or none that you may read"
    return table_text(page_model.table("", HEADS, map(_cells, lines)), width)


def _cells(line: JobLine) -> tuple[str, ...]:
    state = "attached" if line.attached else "ready" if line.attachable else "not ready"
    if line.slowest:
        state += ", slowest rank"
    cpu = None if line.cpu_ns is None or not line.age_ns else f"{100 * line.cpu_ns / line.age_ns:.0f} %"
    return (
        str(line.pid),
        line.user or "",
        "" if line.rank is None else str(line.rank),
        line.torch or "?",
        cpu or "",
        "" if line.rss_bytes is None else f"{line.rss_bytes / (1 << 20):.0f} MiB",
        "" if line.age_ns is None else duration_words(line.age_ns),
        state,
        f"{line.script or '?'} {line.arguments or ''}".rstrip(),
    )


def _line(found: JobLine) -> JobLine:
    with suppress(AutobrrrError):
        if is_under_way(find_target(found.pid)):
            return msgspec.structs.replace(found, attached=True, attachable=True, why=None)
    return found


def _slowest(jobs_of_ranks: Iterable[list[int]]) -> dict[int | None, bool | None]:
    """Of each rank that was timed whether the others wait for it."""
    slow: dict[int | None, bool | None] = {}
    for pids in jobs_of_ranks:
        if found := each_rank.ask(pids):
            slow |= {line.pid: line.slowest for line in all_ranks.together(found).ranks or []}
    return slow


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
        why = "it can't be looked at: its user's files don't answer"
        return [JobLine(pid=pid, why=why) for pid in pids]
    return [line for line in found if line.pid in pids]
