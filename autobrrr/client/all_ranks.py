"""The ranks of one job, seen together: whose sessions are there, what they say, which is the slowest.

In: a process of the job. Every session is asked through its own socket on this machine; one that does not
answer in time is left out. Nothing is attached by this.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from queue import Empty, SimpleQueue

import msgspec

from autobrrr.attach import job_roles
from autobrrr.client.session_client import Client, join
from autobrrr.diagnosis.models.slowest_rank import slowest_rank
from autobrrr.errors import AutobrrrError
from autobrrr.records import Diagnosis, RankLine, SlowestRank
from autobrrr.sidecar.sockets.session_socket import find_target, served

ANSWER_S = 3.0
MOST_AT_ONCE = 8

Joiner = Callable[[int], Client | None]


def siblings(pid: int) -> list[int]:
    """The other ranks of a process's job that have a session.

    Raises:
        TargetGone: there is no such process.
    """
    job = job_roles.job_of(pid)
    if job is None:
        return []
    return [other for other in served(find_target(pid)) if other != pid and job_roles.job_of(other) == job]


def ask(pids: Iterable[int], timeout_s: float = ANSWER_S, joiner: Joiner = join) -> list[Diagnosis]:
    """What the sessions of these processes say now; those that have none, or are slow, are left out."""
    waiting: SimpleQueue[int] = SimpleQueue()
    told: SimpleQueue[Diagnosis] = SimpleQueue()
    for pid in pids:
        waiting.put(pid)

    def work() -> None:
        while True:
            try:
                pid = waiting.get_nowait()
            except Empty:
                return
            try:
                client = joiner(pid)
                if client is not None:
                    with client:
                        told.put(client.snapshot())
            except AutobrrrError:
                continue

    # Daemons: a session that never answers holds up neither the caller nor the end of the program.
    threads = [
        threading.Thread(target=work, name="ranks", daemon=True)
        for _ in range(min(MOST_AT_ONCE, waiting.qsize()))
    ]
    for thread in threads:
        thread.start()
    end_s = time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, end_s - time.monotonic()))
    found = []
    while not told.empty():
        found.append(told.get())
    return sorted(found, key=lambda one: one.pid)


def with_siblings(found: Diagnosis, others: Sequence[Diagnosis]) -> Diagnosis:
    """A rank's diagnosis, with how it stands among those that have a session; unchanged for a single rank."""
    if not _one_of_several(found):
        return found
    lines, slowest = _compared([found, *(other for other in others if _same_job(found, other))])
    return msgspec.structs.replace(found, ranks=lines, slowest=slowest)


def together(found: Sequence[Diagnosis], missing: Sequence[RankLine] = ()) -> Diagnosis:
    """All ranks of a job as one: the slowest on top, or the lowest one where none stands out.

    Args:
        found: At least one.
        missing: Ranks that could not be attached to.
    """
    lines, slowest = _compared(found)
    by_pid = {one.pid: one for one in found}
    top = by_pid[lines[0].pid]
    if slowest is not None and slowest.pid is not None:
        top = by_pid[slowest.pid]
    listed = sorted([*lines, *missing], key=_by_rank)
    return msgspec.structs.replace(top, ranks=listed, slowest=slowest)


def slowest_of(found: Sequence[Diagnosis]) -> SlowestRank | None:
    """The rank that the others wait for; None: fewer than two were timed."""
    return _compared(found)[1]


def _compared(found: Sequence[Diagnosis]) -> tuple[list[RankLine], SlowestRank | None]:
    lines = sorted((_line(one) for one in found), key=_by_rank)
    sizes = {one.job.world_size for one in found if one.job is not None}
    slowest = slowest_rank(lines, sizes.pop() if len(sizes) == 1 else None)
    if slowest is not None:
        lines = [
            msgspec.structs.replace(line, slowest=line.pid == slowest.pid) if line.collectives else line
            for line in lines
        ]
    return lines, slowest


def _line(found: Diagnosis) -> RankLine:
    return RankLine(
        rank=job_roles.rank_of(found.pid) if found.job is None else found.job.rank,
        pid=found.pid,
        limit=found.limit,
        regime=found.regime,
        confidence=found.confidence,
        step_ns=found.step_ns.median,
        collectives=found.collectives,
    )


def _one_of_several(found: Diagnosis) -> bool:
    return found.job is not None and found.job.rank is not None and found.job.has_other_ranks


def _same_job(found: Diagnosis, other: Diagnosis) -> bool:
    if found.job is None or other.job is None or other.job.rank in (None, found.job.rank):
        return False
    return other.job.world_size == found.job.world_size


def _by_rank(line: RankLine) -> tuple[bool, int, int]:
    return line.rank is None, line.rank or 0, line.pid
