"""`autobrrr ls`: training jobs of this machine, which of them are attached, which could be."""

from __future__ import annotations

import argparse
import json
import os

import msgspec

from autobrrr.attach import job_listing
from autobrrr.cli.verb_arguments import narrate
from autobrrr.errors import AutobrrrError
from autobrrr.readable import readable
from autobrrr.records import SCHEMA, JobLine
from autobrrr.sidecar.sockets.session_socket import connect, find_target, passed_over


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    lines = jobs()
    for line in passed_over(find_target(os.getpid())):
        narrate(line)
    if args.json:
        print(json.dumps({"schema": SCHEMA, "jobs": [msgspec.to_builtins(line) for line in lines]}))
    else:
        print(table(lines))
    return 0


def jobs() -> list[JobLine]:
    """The training jobs of this machine as they are now."""
    lines = [_line(process) for process in job_listing.find()]
    attached: dict[str, list[int]] = {}
    for line in lines:
        if line.attached and line.job is not None:
            attached.setdefault(line.job, []).append(line.pid)
    slow = _slowest([pids for pids in attached.values() if len(pids) > 1])
    return [msgspec.structs.replace(line, slowest=slow.get(line.pid)) for line in lines]


def table(lines: list[JobLine]) -> str:
    """The list for people."""
    if not lines:
        return "no training job runs on this machine, or none that you may read"
    rows = [("PID", "RANK", "TORCH", "STATE", "SCRIPT")]
    for line in lines:
        state = "attached" if line.attached else "ready" if line.attachable else f"no: {line.why}"
        if line.slowest:
            state += ", slowest rank"
        rank = "" if line.rank is None else str(line.rank)
        torch, script = readable(line.torch or "?"), readable(line.script or "?")
        rows.append((str(line.pid), rank, torch, readable(state), script))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _line(process: job_listing.TrainingProcess) -> JobLine:
    attached = _answers(process.pid)
    return JobLine(
        pid=process.pid,
        script=process.script,
        rank=process.rank,
        torch=process.torch,
        attached=attached,
        attachable=attached or process.why_not is None,
        why=None if attached else process.why_not,
        job=process.job,
    )


def _slowest(jobs_of_ranks: list[list[int]]) -> dict[int, bool]:
    """Of each rank that was timed whether the others wait for it."""
    if not jobs_of_ranks:
        return {}
    from autobrrr.client import all_ranks  # not for --help

    slow: dict[int, bool] = {}
    for pids in jobs_of_ranks:
        found = all_ranks.ask(pids)
        if found:
            lines = all_ranks.together(found).ranks or []
            slow.update({line.pid: line.slowest for line in lines if line.slowest is not None})
    return slow


def _answers(pid: int) -> bool:
    """Whether the session of a job answers: a socket file alone may be a dead sidecar's."""
    try:
        link = connect(find_target(pid))
    except AutobrrrError:
        return False
    if link is not None:
        link.close()
    return link is not None
