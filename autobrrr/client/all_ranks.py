"""The ranks of one job, seen together: what their sessions say, which is the slowest; timed at once.

In: a process of the job. Every session is asked through its own socket on this machine; one that does not
answer in time is left out. Nothing is attached by this. All ranks time their steps at once, so that the same
steps can be set side by side; each session is told what came of it, and its snapshots show it from then on.
"""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import msgspec

from autobrrr.attach import job_roles
from autobrrr.client.session_client import Client, join
from autobrrr.errors import AutobrrrError
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
from autobrrr.records.session_requests import CompareSteps, HoldRank, TakeSnapshot, TellCompared
from autobrrr.sidecar.sockets.session_socket import served

ANSWER_S = 3.0
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

Joiner = Callable[[int], Client | None]


def siblings(pid: int) -> list[int]:
    """The other ranks of a process's job that have a session.

    Raises:
        TargetGone: there is no such process.
    """
    job = job_roles.job_of(pid)
    if job is None:
        return []
    return [other for other in served() if other != pid and job_roles.job_of(other) == job]


def ask(pids: Iterable[int], timeout_s: float = ANSWER_S, joiner: Joiner = join) -> list[Diagnosis]:
    """What the sessions of these processes say now; those that have none, or are slow, are left out."""
    told: list[Diagnosis] = []

    def look(pid: int) -> None:
        with suppress(AutobrrrError):
            client = joiner(pid)
            if client is not None:
                with client:
                    told.append(client.ask(TakeSnapshot()))

    threads, end_s = beside(pids, look), time.monotonic() + timeout_s
    for thread in threads:
        thread.join(max(0.0, end_s - time.monotonic()))
    return sorted(told, key=lambda one: one.pid)


def beside(pids: Iterable[int], work: Callable[[int], object]) -> list[threading.Thread]:
    """Do the work for each rank on its own thread. The program does not wait for these threads to end."""
    threads = [threading.Thread(target=work, args=(pid,), name="ranks", daemon=True) for pid in pids]
    for thread in threads:
        thread.start()
    return threads


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
    straggler = late_rank(ranks, _world_size(known))
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


def _world_size(found: Iterable[Diagnosis]) -> int | None:
    """Ranks of the job; None where that is not known."""
    sizes = {one.job.world_size for one in found if one.job is not None}
    return sizes.pop() if len(sizes) == 1 else None


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


COMPARED_S = 8.0  # or 8 steps, whichever is longer
OF_GIVEN = 0.25  # of a time that the user gives
MEET_S = 45.0  # for the others to be attached, and to know how their loops are built; then to be timed
LOOK_S = 0.1

Say = Callable[[str], None]


class RanksAtOnce:
    """One comparison.

    Args:
        pids: The ranks.
        for_s: The user's time for a diagnosis, where there is one.
    """

    def __init__(self, pids: Iterable[int], for_s: float | None = None) -> None:
        self._coming = set(pids)
        self._under_way: set[int] = set()
        self._ready = 0
        self._told: list[Diagnosis] = []
        self._timed: dict[int, CollectiveWaits] = {}
        self._found: RanksCompared | None = None
        self._for_s = COMPARED_S if for_s is None else min(COMPARED_S, OF_GIVEN * for_s)
        self._meet_s = MEET_S if for_s is None else min(MEET_S, for_s)
        self._changed = threading.Condition()

    def take_part(self, pid: int, client: Client, say: Say) -> None:
        """Time this rank's steps while other ranks time theirs, if possible. Then read what all show."""
        for part in (self._time, self._tell):
            try:
                part(pid, client)
            except AutobrrrError as error:
                say(error.message)
            finally:
                self.leave(pid)

    def leave(self, pid: int) -> None:
        """Do not wait for this rank any more."""
        with self._changed:
            self._coming.discard(pid)
            self._under_way.discard(pid)
            self._changed.notify_all()

    def _meets(self, pid: int, client: Client) -> bool:
        """Whether there are others to be compared with, once all are there."""
        end_s = time.monotonic() + self._meet_s
        await_anatomy(client, self._meet_s)
        with self._changed:
            self._ready += 1
            self._under_way.add(pid)
            self._coming.discard(pid)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._coming, max(0.0, end_s - time.monotonic()))
            return self._ready > 1

    def _time(self, pid: int, client: Client) -> None:
        if client.facts.readonly or client.facts.outside:
            return
        client.ask(HoldRank())
        if self._meets(pid, client):
            timed = client.ask(CompareSteps(int(self._for_s * 1e9)))
            now = client.ask(TakeSnapshot())
            with self._changed:
                self._told.append(now)
                self._timed[pid] = timed
        else:
            client.ask(HoldRank(False))

    def _tell(self, pid: int, client: Client) -> None:
        found = self._outcome(pid)
        if found is not None:
            client.ask(TellCompared(found))

    def _outcome(self, pid: int) -> RanksCompared | None:
        """What the steps of all ranks show; a rank that is much later than this one is left out."""
        with self._changed:
            timed = pid in self._timed
            awaited = (self._under_way,) if timed else (self._under_way, self._coming)
            longest_s = self._meet_s if timed else self._meet_s + self._for_s
            all_there = self._changed.wait_for(lambda: not any(awaited), longest_s)
            if self._found is None and (timed or all_there):
                self._found = compared(self._told, self._timed)
            return self._found


def await_anatomy(client: Client, for_s: float | None = None) -> None:
    """Wait until a session knows how its job's loop is built, at most so long, else as for other ranks."""
    end_s = time.monotonic() + (MEET_S if for_s is None else for_s)
    while client.ask(TakeSnapshot()).anatomy is None and time.monotonic() < end_s:
        time.sleep(LOOK_S)


def compare_sessions(
    pids: Sequence[int], at_once: RanksAtOnce, say: Say, joiner: Joiner = join
) -> list[threading.Thread]:
    """Have the sessions of these ranks take part, on threads that end with the program."""

    def work(pid: int) -> None:
        try:
            client = joiner(pid)
            if client is not None:
                with client:
                    at_once.take_part(pid, client, say)
        except AutobrrrError as error:
            say(error.message)
        finally:
            at_once.leave(pid)

    return beside(pids, work)
