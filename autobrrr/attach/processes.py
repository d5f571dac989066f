"""The training processes of this machine, with the figures that `ls` shows. Nothing is stopped."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from autobrrr.attach import jobs, preload, procfs, triage


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProcess:
    """One process that trains, or that could."""

    pid: int
    start_ticks: int
    script: str | None
    rank: int | None
    torch: str | None
    why_not: str | None  # None: it can be attached to
    job: str | None = None  # the same for all ranks of one job


def find(proc: Path = procfs.PROC, own_pid: int | None = None) -> list[TrainingProcess]:
    """All processes with torch that may be a job: no workers, no launchers, nothing of ours."""
    ours = os.getpid() if own_pid is None else own_pid
    with_torch = {}
    for pid in procfs.pids(proc):
        found = jobs.torch_of(pid, proc) if pid != ours else None
        if found is not None and not _is_no_job(pid, proc):
            with_torch[pid] = found
    launched = {pid: jobs.ranks_below(pid, proc) for pid in with_torch}
    listed = []
    for pid, torch in with_torch.items():
        seen = procfs.stat(pid, proc)
        # A child of a job that is no rank of its own helps it: an environment of an RL job, say.
        if seen is None or launched[pid] or (seen.ppid in launched and pid not in launched[seen.ppid]):
            continue
        refusal = None if preload.listening(pid, proc) else triage.refusal(triage.Case(pid=pid, proc=proc))
        listed.append(
            TrainingProcess(
                pid=pid,
                start_ticks=seen.start_ticks,
                script=procfs.script(procfs.cmdline(pid, proc)),
                rank=jobs.rank_of(pid, proc),
                torch=torch.version,
                why_not=None if refusal is None else refusal[1].detail,
                job=jobs.job_of(pid, proc),
            )
        )
    return listed


def _is_no_job(pid: int, proc: Path) -> bool:
    words = procfs.cmdline(pid, proc)
    return (
        jobs.is_loader_worker(pid, proc)
        or jobs.is_compile_worker(pid, proc)
        or jobs.is_launcher_command(words)
        or (procfs.script(words) or "").startswith("-m autobrrr")
    )
