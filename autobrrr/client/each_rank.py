"""The ranks of a launcher, and one piece of work done to all of them at once.

Each has its own session. If one fails the others stand, and the outcome says so. So all ranks time the same
steps, which can then be set side by side; each session is told what came of it, and its snapshots show it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from autobrrr.attach import job_roles
from autobrrr.client.all_ranks import compared, siblings, together, with_siblings
from autobrrr.client.diagnosing import DiagnosisOptions, Doing, await_verdict, before_tuning, diagnosed
from autobrrr.client.session_client import Client, join, open_session
from autobrrr.errors import AutobrrrError, TargetGone
from autobrrr.records import CollectiveWaits, Diagnosis, RankLine, verdict_line
from autobrrr.records.session_requests import (
    CompareSteps,
    HoldRank,
    SwitchTogether,
    TakeSnapshot,
    TellCompared,
)
from autobrrr.sidecar.process.session_options import SessionOptions, State
from autobrrr.sidecar.sockets.session_socket import find_target, is_under_way

ANSWER_S = 3.0
COMPARED_S = 8.0  # or 8 steps, whichever is longer
OF_GIVEN = 0.25  # of a time that the user gives
MEET_S = 45.0  # for all ranks to be attached, and to know how their loops are built
LOOK_S = 0.1

T = TypeVar("T")
Say = Callable[[str], None]
Joiner = Callable[[int], Client | None]


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
    pids: Sequence[int], options: SessionOptions, say_of: Callable[[int], Say], *, owned: bool = False
) -> RanksOutcome[Client]:
    """A session in every rank. The arguments are `open_session`'s."""
    return for_each(pids, lambda pid: open_session(pid, options, say_of(pid), owned=owned))


def for_each(
    pids: Iterable[int], work: Callable[[int], T], *, timeout_s: float | None = None
) -> RanksOutcome[T]:
    """Do the work to every rank, each on a thread; to one that is waited for without end, here.

    Args:
        timeout_s: Ranks that take longer are left out.
    """
    pids = list(pids)
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

    if len(pids) == 1 and timeout_s is None:
        do(pids[0])
    else:
        threads = [threading.Thread(target=do, args=(pid,), name="ranks", daemon=True) for pid in pids]
        for thread in threads:
            thread.start()
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in threads:
            thread.join(None if end_s is None else max(0.0, end_s - time.monotonic()))
    if broken:
        raise broken[0]
    return RanksOutcome(
        done={pid: done[pid] for pid in pids if pid in done},
        failed={pid: failed[pid] for pid in pids if pid in failed},
    )


def ask(pids: Iterable[int], timeout_s: float = ANSWER_S, joiner: Joiner = join) -> list[Diagnosis]:
    """What the sessions of these processes say now; those that have none, or are slow, are left out."""

    def look(pid: int) -> Diagnosis:
        client = joiner(pid)
        if client is None:
            raise TargetGone(f"process {pid} has no session")
        with client:
            return client.ask(TakeSnapshot())

    found = for_each(pids, look, timeout_s=timeout_s).done.values()
    return sorted(found, key=lambda one: one.pid)


def compare_ranks(clients: Mapping[int, Client], for_s: float | None, say_of: Callable[[int], Say]) -> None:
    """Have ranks time the same steps, each of those that can be; all are told what they show.

    Args:
        for_s: The user's time for a diagnosis, where there is one.
    """
    compared_s = COMPARED_S if for_s is None else min(COMPARED_S, OF_GIVEN * for_s)

    def of_those(pids: Iterable[int], work: Callable[[int], T]) -> dict[int, T]:
        outcome = for_each(pids, work)
        for pid, error in outcome.failed.items():
            say_of(pid)(error.message)
        return outcome.done

    def ready(pid: int) -> None:
        clients[pid].ask(HoldRank())
        await_anatomy(clients[pid], _meeting_s(for_s))

    def timed(pid: int) -> tuple[Diagnosis, CollectiveWaits]:
        steps = clients[pid].ask(CompareSteps(int(compared_s * 1e9)))
        return clients[pid].ask(TakeSnapshot()), steps

    there = of_those((pid for pid, client in clients.items() if _is_timed(client)), ready)
    if len(there) < 2:
        of_those(there, lambda pid: clients[pid].ask(HoldRank(False)))
        return
    known = of_those(there, timed)
    found = compared([now for now, _ in known.values()], {pid: steps for pid, (_, steps) in known.items()})
    if found is not None:
        of_those(clients, lambda pid: clients[pid].ask(TellCompared(found)))


def _is_timed(client: Client) -> bool:
    return not (client.facts.readonly or client.facts.outside)


def _meeting_s(for_s: float | None) -> float:
    return MEET_S if for_s is None else min(MEET_S, for_s)


def await_anatomy(client: Client, for_s: float = MEET_S) -> None:
    """Wait until a session knows how its job's loop is built, at most so long."""
    end_s = time.monotonic() + for_s
    while client.ask(TakeSnapshot()).anatomy is None and time.monotonic() < end_s:
        time.sleep(LOOK_S)


@contextmanager
def joined(pids: Iterable[int], say: Say, joiner: Joiner = join) -> Iterator[dict[int, Client]]:
    """The sessions that these ranks have, on connections of their own."""
    with ExitStack() as links:
        found: dict[int, Client] = {}
        for pid in pids:
            try:
                client = joiner(pid)
            except AutobrrrError as error:
                say(error.message)
                continue
            if client is not None:
                found[pid] = links.enter_context(client)
        yield found


def compare_sessions(
    pids: Iterable[int], for_s: float | None, say: Say, joiner: Joiner = join
) -> threading.Thread:
    """Compare the ranks that have a session, on a thread that ends with the program."""

    def work() -> None:
        with joined(pids, say, joiner) as clients:
            compare_ranks(clients, for_s, lambda pid: say)

    thread = threading.Thread(target=work, name="ranks", daemon=True)
    thread.start()
    return thread


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
    compares = len(pids) + len(others) > 1 and not tuned
    clients: dict[int, Client] = {}
    gate, alone = threading.Barrier(len(pids), timeout=_meeting_s(options.for_s)), threading.Lock()
    compared: set[int] = set()

    def compare() -> None:
        """Those that are there, once; the others wait for it."""
        with alone:
            if compared:
                return
            there = dict(clients)
            compared.update(there)
            with joined(others, _unheard) as beside:
                says = {pid: say_of(pid) for pid in there} | dict.fromkeys(beside, _unheard)
                compare_ranks({**there, **beside}, options.for_s, says.__getitem__)

    def meet(client: Client) -> None:
        if _is_timed(client):
            client.ask(HoldRank())
        clients[client.facts.pid] = client
        with suppress(threading.BrokenBarrierError):  # one is not there in time
            gate.wait()
        compare()
        if _is_timed(client) and client.facts.pid not in compared:
            client.ask(HoldRank(False))

    def work(pid: int) -> Diagnosis:
        try:
            before = meet if compares else None
            found = diagnosed(pid, options, say_of(pid), doing=doing_of(pid), before=before)
        except AutobrrrError:
            if compares and pid not in clients:  # the others go on without it
                with suppress(threading.BrokenBarrierError):
                    gate.wait()
            raise
        return with_siblings(found, ask(others)) if len(pids) == 1 else found

    return for_each(pids, work)


def _unheard(text: str) -> None:
    """Of ranks that somebody else has attached to."""


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
        for_each(clients, lambda pid: clients[pid].ask(HoldRank(False)))  # else they measure nothing more
        raise
    compare_ranks(clients, before_tuning(for_s).for_s, say_of)

    def judged(pid: int) -> Diagnosis:
        judge_first(clients[pid], for_s, say_of(pid))
        return clients[pid].ask(TakeSnapshot())

    found = list(_of_all(clients, judged).values())
    _of_all(clients, lambda pid: clients[pid].ask(HoldRank()))  # a rank that measures can't switch
    return clients[together(found).pid]


def _of_all(pids: Iterable[int], work: Callable[[int], T]) -> dict[int, T]:
    """What the work gives for each rank. Raises what the first one failed for."""
    outcome = for_each(pids, work)
    outcome.refuse_any()
    return outcome.done
