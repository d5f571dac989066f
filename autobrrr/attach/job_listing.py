"""The training processes of this machine, with the figures that `ls` shows. Nothing is stopped.

Whatever one process shows, the others are listed: what can't be looked at says so in its own row.
"""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable
from pathlib import Path

from autobrrr.attach import job_roles, triage
from autobrrr.attach.preload import preloaded_agent
from autobrrr.machine import procfs
from autobrrr.readable import readable
from autobrrr.records.machine_records import JobLine

SHOWN_CHARACTERS = 1024  # of a script or an objection


def find(
    proc: Path = procfs.PROC,
    own_pid: int | None = None,
    *,
    sleep: Callable[[float], object] = time.sleep,
    left: Callable[[int], bool] = lambda pid: False,
) -> list[JobLine]:
    """All processes with torch that may be a job: no workers, no launchers, nothing of ours.

    Which of them have a session is not asked.

    Args:
        left: Whether a process that may be a job is left to somebody else.
    """
    ours = os.getpid() if own_pid is None else own_pid
    look = job_roles.Look(proc, sleep=sleep)
    candidates = [
        pid for pid in procfs.pids(proc) if pid != ours and look.maps_torch(pid) and not _is_no_job(pid, look)
    ]
    listed = []
    launched = {pid: job_roles.ranks_below(pid, proc, look=look) for pid in candidates}
    for pid, ranks in launched.items():
        seen = procfs.stat(pid, proc)
        # A child of a job that is no rank of its own helps it: an environment of an RL job, say.
        if seen is None or ranks or (seen.ppid in launched and pid not in launched[seen.ppid]):
            continue
        if left(pid):
            continue
        try:
            found = _process(pid, look)
        except Exception as error:  # noqa: BLE001 - one process must not end the list of the others
            why = f"{type(error).__name__}: {readable(str(error), SHOWN_CHARACTERS)}"
            found = JobLine(pid=pid, why=f"it can't be looked at: {why}")
        if found is not None:
            listed.append(found)
    return sorted(listed, key=lambda line: line.pid)


def _process(pid: int, look: job_roles.Look) -> JobLine | None:
    proc = look.proc
    case = triage.TriageCase(pid=pid, proc=proc, ranks_below=lambda pid, proc: [])
    torch = case.torch
    if torch is None:
        return None
    refusal = None if preloaded_agent.listening(pid, proc) else triage.refusal(case)
    words = procfs.cmdline(pid, proc)
    seen, owner = procfs.stat(pid, proc), procfs.owner(pid, proc)
    script, now_ns = procfs.script(words), time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return JobLine(
        pid=pid,
        script=None if script is None else readable(script, SHOWN_CHARACTERS),
        rank=job_roles.rank_of(pid, proc),
        torch=None if torch.version is None else readable(torch.version),
        attachable=refusal is None,
        why=None if refusal is None else readable(refusal[1].detail, SHOWN_CHARACTERS),
        job=job_roles.job_of(pid, proc),
        user=None if owner is None else _user(owner[0]),
        arguments=readable(" ".join(word.raw for word in procfs.arguments(words)), SHOWN_CHARACTERS),
        age_ns=None if seen is None else max(0, now_ns - seen.start_ticks * procfs.TICK_NS),
        cpu_ns=None if seen is None else seen.cpu_ns,
        rss_bytes=None if seen is None else seen.rss_bytes,
    )


def _user(uid: int) -> str:
    try:
        return readable(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return str(uid)


def _is_no_job(pid: int, look: job_roles.Look) -> bool:
    proc = look.proc
    words = procfs.cmdline(pid, proc)
    script = procfs.script(words)
    return (
        job_roles.is_loader_worker(pid, proc, look)
        or job_roles.is_compile_worker(pid, proc)
        or job_roles.is_launcher_command(words)
        or (script is not None and script.raw.startswith("-m autobrrr"))
        or [word.raw for word in words[1:4]] == ["-I", "-S", "-B"]  # a replay of our own: it has no site
    )
