"""The ranks of one job, seen together: what their sessions say, what timed steps show, which is slowest.

In: a process of the job; the diagnoses of its ranks. Nothing is attached or asked here.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence

import msgspec

from autobrrr.attach import job_roles
from autobrrr.records import (
    CollectiveWaits,
    Diagnosis,
    LateCause,
    LateRank,
    Limit,
    NoneLate,
    RankLine,
    RanksCompared,
)
from autobrrr.sidecar.sockets.session_socket import served

NOT_KNOWN: tuple[NoneLate, ...] = (  # which is slowest
    "too_few_steps",
    "on_device",
    "incomplete",
    "synced_backwards",
)
_CAUSE_OF_LIMIT: Mapping[Limit, LateCause] = {
    "input": "loader",
    "host": "host",
    "sync": "host",
    "kernels": "kernels",
}


def siblings(pid: int) -> list[int]:
    """The other ranks of a process's job that have a session.

    Raises:
        TargetGone: there is no such process.
    """
    job = job_roles.job_of(pid)
    if job is None:
        return []
    return [other for other in served() if other != pid and job_roles.job_of(other) == job]


def with_siblings(found: Diagnosis, others: Sequence[Diagnosis]) -> Diagnosis:
    """A rank's diagnosis, with how it stands among those that have a session; unchanged for a single rank."""
    if found.job is None or found.job.rank is None or not found.job.has_other_ranks:
        return found
    same = [found, *(other for other in others if _same_job(found, other))]
    straggler = _straggler(same)
    return msgspec.structs.replace(found, ranks=_lines(same, straggler), straggler=straggler)


def together(found: Sequence[Diagnosis], missing: Sequence[RankLine] = ()) -> Diagnosis:
    """All ranks of a job as one: the slowest on top, or the lowest one where none stands out.

    A device that waits for a late rank is as busy with collectives as one that communicates for long: where
    it is not known which rank is late, one that is not limited by communication stands above those that are.

    Args:
        found: At least one.
        missing: Ranks that could not be attached to.
    """
    straggler = _straggler(found, missing=bool(missing))
    lines = _lines(found, straggler)
    by_pid = {one.pid: one for one in found}
    here = [line for line in lines if line.pid in by_pid]
    named = here[0].pid
    if straggler is not None and straggler.pid in by_pid:
        named = straggler.pid
    elif straggler is None or straggler.why in NOT_KNOWN:
        named = next((line.pid for line in here if line.limit != "communication"), named)
    listed = sorted([*lines, *missing], key=_by_rank)
    top = by_pid.get(named or 0, found[0])
    return msgspec.structs.replace(top, ranks=listed, straggler=straggler)


def compared(found: Sequence[Diagnosis], timed: Mapping[int, CollectiveWaits]) -> RanksCompared | None:
    """What the steps that ranks have timed at once show; None: fewer than two have.

    Args:
        found: The ranks that have a session on this machine.
        timed: By pid, their steps.
    """
    # These bring numpy.
    from autobrrr.diagnosis.ranks.late_rank import TimedRank, late_rank, longer_phases
    from autobrrr.diagnosis.ranks.rank_steps import usual_phases
    from autobrrr.diagnosis.ranks.rank_times import rank_times

    known = [one for one in found if one.pid in timed]
    ranks = [
        TimedRank(
            rank=_rank_of(one), pid=one.pid, timed=timed[one.pid], host=one.host, device=_device_of(one)
        )
        for one in known
    ]
    sizes = {one.job.world_size for one in known if one.job is not None}
    straggler = late_rank(ranks, sizes.pop() if len(sizes) == 1 else None)
    if straggler is None:
        return None
    phases = longer_phases([each.timed for each in ranks])
    judged = straggler.why not in NOT_KNOWN
    lines = [
        msgspec.structs.replace(
            _line(one),
            collectives=rank_times(each.timed),
            phase=phase,
            own_by_phase_ns=usual_phases(each.timed),
            slowest=straggler.rank is not None and straggler.rank == each.rank if judged else None,
        )
        for one, each, phase in zip(known, ranks, phases, strict=True)
    ]
    return RanksCompared(straggler=straggler, ranks=sorted(lines, key=_by_rank))


def _straggler(found: Sequence[Diagnosis], *, missing: bool = False) -> LateRank | None:
    """What all of these sessions were told; None where one was told nothing, or its job has changed.

    Steps on devices are not compared. There the limits show a late rank: the others wait in collectives.
    """
    told = found[0].straggler
    if any(one.straggler != told for one in found):
        return None
    if told is None or told.why != "on_device" or missing or len(found) != told.world_size:
        return told
    working = [one for one in found if one.limit != "communication"]
    cause = _CAUSE_OF_LIMIT.get(working[0].limit) if len(working) == 1 else None
    if cause is None:
        return told
    return msgspec.structs.replace(told, rank=_rank_of(working[0]), pid=working[0].pid, why=None, cause=cause)


def _lines(found: Sequence[Diagnosis], straggler: LateRank | None) -> list[RankLine]:
    """The ranks as they are now, with what their last comparison has shown, where it still holds."""
    told = [line for one in found if straggler is not None for line in one.ranks or ()]
    by_pid = {line.pid: line for line in told}
    lines = []
    for one in found:
        line, then = _line(one), by_pid.get(one.pid)
        if then is not None:
            line = msgspec.structs.replace(
                line, slowest=then.slowest, phase=then.phase, own_by_phase_ns=then.own_by_phase_ns
            )
        if straggler is not None and straggler.rank is not None:
            line = msgspec.structs.replace(line, slowest=line.pid == straggler.pid)
        lines.append(line)
    return sorted(lines, key=_by_rank)


def _rank_of(found: Diagnosis) -> int | None:
    return job_roles.rank_of(found.pid) if found.job is None else found.job.rank


def _line(found: Diagnosis) -> RankLine:
    return RankLine(
        rank=_rank_of(found),
        pid=found.pid,
        limit=found.limit,
        regime=found.regime,
        confidence=found.confidence,
        step_ns=found.step_ns.median,
        collectives=found.collectives,
        host=platform.node() or None,
        device=_device_of(found),
    )


def _device_of(found: Diagnosis) -> str | None:
    return None if found.job is None else found.job.device or ("cuda" if found.job.cuda else None)


def _same_job(found: Diagnosis, other: Diagnosis) -> bool:
    if found.job is None or other.job is None or other.job.rank in (None, found.job.rank):
        return False
    return other.job.world_size == found.job.world_size


def _by_rank(line: RankLine) -> tuple[bool, int, int]:
    return line.rank is None, line.rank or 0, line.pid or 0
