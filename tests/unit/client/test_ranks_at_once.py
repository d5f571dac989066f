"""Ranks time their steps once all are there; who fails or never comes holds nobody up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace

import msgspec
import pytest

from autobrrr.client import all_ranks, each_rank
from autobrrr.client.diagnosing import DiagnosisOptions
from autobrrr.client.each_rank import compare_ranks, compare_sessions
from autobrrr.client.session_client import Client
from autobrrr.errors import AutobrrrError
from autobrrr.records import Anatomy, CollectiveWaits, Diagnosis, RanksCompared
from autobrrr.records.record_base import as_record
from autobrrr.report.page_text import parts_text
from autobrrr.report.pages.diagnosis_parts import ranks_table, ranks_words
from support.judged.rank_steps import MS, RankModel, job
from support.screens import tui
from support.sessions.client import PlayedClient
from support.sessions.sidecar import anatomy

# Made up once: the last of them is late.
STEPS = job([*[RankModel()] * 3, RankModel(more_ms={"forward": 12.0})], 64)


def rank(number: int, size: int = 2) -> Diagnosis:
    return tui.snapshot(
        pid=100 + number, job=tui.job(rank=number, world_size=size), anatomy=as_record(anatomy(), Anatomy)
    )


class FakeSession(PlayedClient):
    """A rank's session, which notes how many were held when it was asked to time steps."""

    def __init__(
        self,
        number: int,
        held: set[int],
        why_not: str | None = None,
        *,
        readonly: bool = False,
        size: int = 2,
    ) -> None:
        self.number, self.held, self.why_not, self.size = number, held, why_not, size
        self.facts = SimpleNamespace(pid=100 + number, readonly=readonly, outside=False)
        self.held_then: int | None = None
        self.for_s: float | None = None
        self.told: RanksCompared | None = None

    def hold(self, held: bool) -> None:
        if held:
            self.held.add(self.number)
        else:
            self.held.discard(self.number)

    def snapshot(self) -> Diagnosis:
        told = self.told
        now = rank(self.number, self.size)
        if told is None:
            return now
        return msgspec.structs.replace(now, ranks=told.ranks, straggler=told.straggler)

    def compare(self, for_ns: int) -> CollectiveWaits:
        self.for_s, self.held_then = for_ns / 1e9, len(self.held)
        if self.why_not is not None:
            raise AutobrrrError(self.why_not)
        return STEPS[self.number]

    def compared(self, found: RanksCompared) -> None:
        self.told = found


def compared(sessions: list[FakeSession], for_s: float | None = None) -> list[str]:
    """What is said while all ranks are compared."""
    said: list[str] = []
    clients: dict[int, Client] = {100 + each.number: each for each in sessions}  # type: ignore[misc]
    compare_ranks(clients, for_s, lambda pid: said.append)
    return said


def told_of(sessions: list[FakeSession]) -> list[list[int | None] | None]:
    """The ranks that each session was told of."""
    return [None if each.told is None else [line.rank for line in each.told.ranks] for each in sessions]


def test_all_ranks_are_held_before_any_of_them_times_its_steps_and_all_hear_the_same() -> None:
    held: set[int] = set()
    sessions = [FakeSession(number, held, size=4) for number in range(4)]
    assert not compared(sessions)
    assert [each.held_then for each in sessions] == [4] * 4
    assert told_of(sessions) == [[0, 1, 2, 3]] * 4
    assert all(each.told == sessions[0].told for each in sessions)
    assert sessions[0].told is not None
    assert sessions[0].told.straggler.rank == 3


def test_a_rank_that_can_not_be_attached_to_keeps_the_others_from_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sessions = {100 + number: FakeSession(number, set(), size=3) for number in range(3)}

    def diagnosed(
        pid: int, *rest: object, before: Callable[[FakeSession], None], **more: object
    ) -> Diagnosis:
        if pid == 101:
            raise AutobrrrError("process 101 is stopped")
        before(sessions[pid])
        return sessions[pid].snapshot()

    monkeypatch.setattr(each_rank, "diagnosed", diagnosed)
    outcome = each_rank.diagnosed_ranks(list(sessions), DiagnosisOptions(), lambda pid: lambda text: None)
    assert list(outcome.done) == [100, 102]
    assert told_of(list(sessions.values())) == [[0, 2], None, [0, 2]]


def test_ranks_are_compared_without_one_that_takes_too_long_to_attach_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held: set[int] = set()
    sessions = {100 + number: FakeSession(number, held, size=3) for number in range(3)}
    goes_on = threading.Event()

    def diagnosed(
        pid: int, *rest: object, before: Callable[[FakeSession], None], **more: object
    ) -> Diagnosis:
        if pid == 102:
            goes_on.wait(30)
        before(sessions[pid])
        goes_on.set()
        return sessions[pid].snapshot()

    monkeypatch.setattr(each_rank, "diagnosed", diagnosed)
    monkeypatch.setattr(each_rank, "MEET_S", 0.1)
    outcome = each_rank.diagnosed_ranks(list(sessions), DiagnosisOptions(), lambda pid: lambda text: None)
    assert list(outcome.done) == [100, 101, 102]
    assert 2 not in held, "it measures on"
    assert told_of(list(sessions.values())) == [[0, 1], [0, 1], None]


def test_a_rank_that_can_not_be_timed_says_why_and_hears_what_the_others_show() -> None:
    held: set[int] = set()
    sessions = [FakeSession(0, held), FakeSession(1, held, "it failed"), FakeSession(2, held)]
    assert compared(sessions) == ["it failed"]
    assert told_of(sessions) == [[0, 2]] * 3


def test_one_rank_alone_times_nothing() -> None:
    session = FakeSession(0, set())
    compared([session, FakeSession(1, set(), readonly=True)])
    assert session.told is None
    assert session.for_s is None
    assert not session.held, "it measures on"


def test_sessions_that_are_there_take_part_and_one_that_is_gone_does_not() -> None:
    sessions = {100 + number: FakeSession(number, set(), size=3) for number in range(2)}

    def joined(pid: int) -> FakeSession:
        if pid == 102:
            raise AutobrrrError("process 102 ended")
        return sessions[pid]

    said: list[str] = []
    pids = [*sessions, 102]
    compare_sessions(pids, None, said.append, joined).join(30)  # type: ignore[arg-type]
    assert told_of(list(sessions.values())) == [[0, 1], [0, 1]]
    assert said == ["process 102 ended"]


@pytest.mark.parametrize(("given", "expected"), [(None, 8.0), (12.0, 3.0), (300.0, 8.0)])
def test_a_given_time_is_not_spent_on_the_comparison_alone(given: float | None, expected: float) -> None:
    sessions = [FakeSession(number, set()) for number in range(2)]
    compared(sessions, given)
    assert sessions[0].for_s == expected


def told(*models: RankModel, steps: int = 64) -> Diagnosis:
    """Ranks whose steps were compared, together."""
    ranks = [rank(number, len(models)) for number in range(len(models))]
    timed = dict(zip((each.pid for each in ranks), job(models, steps), strict=True))
    found = all_ranks.compared(ranks, timed)
    assert found is not None
    return all_ranks.together(
        [
            msgspec.structs.replace(each, ranks=found.ranks, straggler=found.straggler, regime="overhead")
            for each in ranks
        ]
    )


def test_what_ranks_have_timed_at_once_names_the_late_one_and_its_cause() -> None:
    found = told(RankModel(), RankModel(more_ms={"data_wait": 12.0}))
    late = found.straggler
    assert late is not None
    assert (found.pid, late.rank, late.pid, late.cause) == (101, 1, 101, "loader")
    lines = found.ranks or []
    assert [(line.phase, line.slowest, line.regime) for line in lines] == [
        (None, False, "overhead"),
        ("data_wait", True, "overhead"),
    ]
    assert lines[1].own_by_phase_ns["data_wait"] == pytest.approx(13 * MS, rel=0.05)
    said = ranks_words(found) or ""
    assert said.startswith("rank 1 is slowest: the others wait 11.9 ms of a mean 31.4 ms step")
    assert said.endswith("it waits for data")
    assert "data wait" in parts_text(ranks_table(lines)).splitlines()[2]
