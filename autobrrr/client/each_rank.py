"""The ranks of a launcher, and one piece of work done to all of them at once.

Each has its own session. If one fails the others stand, and the outcome says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from autobrrr.attach import job_roles
from autobrrr.client.all_ranks import (
    RanksAtOnce,
    ask,
    await_anatomy,
    beside,
    compare_sessions,
    siblings,
    together,
    with_siblings,
)
from autobrrr.client.diagnosing import (
    DiagnosisOptions,
    Doing,
    await_verdict,
    before_tuning,
    diagnosed,
)
from autobrrr.client.session_client import Client, open_session
from autobrrr.errors import AutobrrrError
from autobrrr.records import Diagnosis, RankLine, verdict_line
from autobrrr.records.session_requests import HoldRank, SwitchTogether, TakeSnapshot
from autobrrr.sidecar.process.session_options import SessionOptions, State
from autobrrr.sidecar.sockets.session_socket import find_target, is_under_way

T = TypeVar("T")
Say = Callable[[str], None]


def launched_by(pid: int) -> list[int]:
    """The processes of a launcher's ranks, by rank; none where the process trains by itself.

    Raises:
        TargetGone: there is no such process.
    """
    # What has a session is no launcher.
    return [] if is_under_way(find_target(pid)) else job_roles.launched_ranks(pid)


@dataclass(slots=True, kw_only=True)
class RanksOutcome(Generic[T]):
    """What came of the work, by pid."""

    done: dict[int, T] = field(default_factory=dict)
    failed: dict[int, AutobrrrError] = field(default_factory=dict)

    @property
    def missing(self) -> list[RankLine]:
        """The ranks that failed, with their reasons."""
        return [
            RankLine(rank=job_roles.rank_of(pid), pid=pid, why=error.message)
            for pid, error in self.failed.items()
        ]

    def exit_code(self, otherwise: int) -> int:
        """That of the first rank that failed; all are worth one that is missing."""
        return next((error.exit_code for error in self.failed.values()), otherwise)

    def refuse_none(self) -> None:
        """Raises what the first rank failed for, where all have."""
        if not self.done:
            self.refuse_any()

    def refuse_any(self) -> None:
        """Raises what the first rank failed for, where one has."""
        for error in self.failed.values():
            raise error


def entered(
    pids: Sequence[int],
    options: SessionOptions,
    say_of: Callable[[int], Say],
    *,
    owned: bool = False,
) -> RanksOutcome[Client]:
    """A session in every rank. The arguments are `open_session`'s."""

    def opened(pid: int) -> Client:
        return open_session(pid, options, say_of(pid), owned=owned)

    return for_each(pids, opened, at_once=len(pids) > 1)


def for_each(pids: Sequence[int], work: Callable[[int], T], *, at_once: bool = True) -> RanksOutcome[T]:
    """Do the work to every rank.

    Args:
        at_once: On a thread for each; else here, one after the other.
    """
    done: dict[int, T] = {}
    failed: dict[int, AutobrrrError] = {}
    broken: list[Exception] = []

    def do(pid: int) -> None:
        try:
            done[pid] = work(pid)
        except AutobrrrError as error:
            failed[pid] = error
        except Exception as error:  # noqa: BLE001 - raised again below, on the thread that asked
            broken.append(error)

    if at_once:
        for thread in beside(pids, do):
            thread.join()
    else:
        for pid in pids:
            do(pid)
    if broken:
        raise broken[0]
    return RanksOutcome(
        done={pid: done[pid] for pid in pids if pid in done},
        failed={pid: failed[pid] for pid in pids if pid in failed},
    )


def diagnosed_ranks(
    pids: Sequence[int],
    options: DiagnosisOptions,
    say_of: Callable[[int], Say],
    doing_of: Callable[[int], Doing | None] = lambda pid: None,
) -> RanksOutcome[Diagnosis]:
    """Diagnose the ranks of a launcher, or one process beside those of its job that have a session.

    Several time the same steps first.
    """
    others = siblings(pids[0]) if len(pids) == 1 else []
    tuned = any(other.state == State.TUNING.value for other in ask(others))  # no one else's hooks beside it
    at_once = RanksAtOnce([*pids, *others], options.for_s)
    compares = len(pids) + len(others) > 1 and not tuned
    if compares:
        compare_sessions(others, at_once, lambda text: None)

    def work(pid: int) -> Diagnosis:
        say = say_of(pid)
        before = partial(at_once.take_part, pid, say=say) if compares else None
        try:
            found = diagnosed(pid, options, say, doing=doing_of(pid), before=before)
        finally:
            at_once.leave(pid)
        return with_siblings(found, ask(others)) if len(pids) == 1 else found

    return for_each(pids, work, at_once=len(pids) > 1)


def as_one(
    outcome: RanksOutcome[Diagnosis], missing: Sequence[RankLine] = (), *, has_ranks: bool
) -> Diagnosis:
    """What the ranks of a launcher say, the slowest on top; what a process says that trains by itself.

    Raises:
        AutobrrrError: what the first rank failed for, where all have.
    """
    outcome.refuse_none()
    found = list(outcome.done.values())
    return together(found, [*missing, *outcome.missing]) if has_ranks else found[0]


def judge_first(client: Client, for_s: float, say: Say, doing: Doing | None = None) -> None:
    """Wait for the verdict that orders the trials of a tuning; a session that was there has one."""
    if client.started:
        say(verdict_line(await_verdict(client, before_tuning(for_s), say, doing=doing)))


def ready_to_tune(clients: Mapping[int, Client], for_s: float, say_of: Callable[[int], Say]) -> Client:
    """Have all ranks switch together from here on, then judge them.

    Args:
        for_s: Time of the tuning, in seconds.

    Returns:
        The session that tunes all ranks, that of the slowest.

    Raises:
        AutobrrrError: a session has ended, or the ranks can't switch together.
    """
    one = next(iter(clients))
    if job_roles.size_of(one).elsewhere:
        raise AutobrrrError(
            "the job has ranks on other machines, and a remedy goes on in all ranks or in none",
            f"autobrrr tune {one} applies to one rank what changes no result",
        )
    # First: where they can't, as with sharded parameters, nothing need be measured.
    _of_all(clients, lambda pid: await_anatomy(clients[pid]))
    log = clients[one].ask(SwitchTogether())
    others = [pid for pid in clients if pid != one]
    try:
        _of_all(others, lambda pid: clients[pid].ask(SwitchTogether(log)))
    except AutobrrrError:
        for_each(
            list(clients), lambda pid: clients[pid].ask(HoldRank(False))
        )  # those that could measure nothing more
        raise
    at_once = RanksAtOnce(clients, before_tuning(for_s).for_s)

    def ready(pid: int) -> Diagnosis:
        client, say = clients[pid], say_of(pid)
        at_once.take_part(pid, client, say)
        judge_first(client, for_s, say)
        return client.ask(TakeSnapshot())

    judged = list(_of_all(clients, ready).values())
    _of_all(clients, lambda pid: clients[pid].ask(HoldRank()))  # a rank that measures can't switch
    return clients[together(judged).pid]


def _of_all(pids: Iterable[int], work: Callable[[int], T]) -> dict[int, T]:
    """What the work gives for each rank. Raises what the first one failed for."""
    outcome = for_each(list(pids), work)
    outcome.refuse_any()
    return outcome.done
