"""A rank is diagnosed beside those of its siblings that have a session, unless one of them is tuned."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import msgspec
import pytest

from autobrrr.client import each_rank
from autobrrr.client.diagnosing import DiagnosisOptions
from autobrrr.errors import AutobrrrError
from autobrrr.records import Anatomy, Diagnosis
from autobrrr.records.record_base import as_record
from support.screens import tui
from support.sessions.client import PlayedClient
from support.sessions.sidecar import anatomy

Play = Callable[[list[Diagnosis]], tuple[list[int], bool, Diagnosis]]


def rank(number: int, **changes: object) -> Diagnosis:
    found = tui.snapshot(pid=100 + number, job=tui.job(rank=number, world_size=3))
    return msgspec.structs.replace(found, **changes)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Diagnoses rank 0; the siblings that are compared, whether it takes part, and what is found."""

    def play(others: list[Diagnosis]) -> tuple[list[int], bool, Diagnosis]:
        pids: list[int] = []
        took_part: list[bool] = []

        def diagnosed(pid: int, *rest: object, before: object, **more: object) -> Diagnosis:
            took_part.append(before is not None)
            if callable(before):
                before(SimpleNamespace(facts=SimpleNamespace(pid=pid, readonly=True, outside=False)))
            return rank(0)

        monkeypatch.setattr(each_rank, "siblings", lambda pid: [other.pid for other in others])
        monkeypatch.setattr(each_rank, "ask", lambda asked: others)
        monkeypatch.setattr(
            each_rank, "joined", lambda found, *_: contextlib.nullcontext(pids.extend(found) or {})
        )
        monkeypatch.setattr(each_rank, "diagnosed", diagnosed)
        found = each_rank.diagnosed_ranks([100], DiagnosisOptions(), lambda pid: lambda text: None)
        return pids, took_part[0], found.done[100]

    return play


def test_siblings_with_a_session_are_compared_with_it(compared: Play) -> None:
    pids, took_part, found = compared([rank(1), rank(2)])
    assert (pids, took_part) == ([101, 102], True)
    assert [line.rank for line in found.ranks or []] == [0, 1, 2]


def test_nobody_is_timed_while_a_sibling_is_tuned(compared: Play) -> None:
    assert compared([rank(1, state="tuning"), rank(2)])[:2] == ([], False)


def test_a_rank_alone_is_diagnosed_as_any_job(compared: Play) -> None:
    assert compared([])[:2] == ([], False)


class Played(PlayedClient):
    """A rank's session, whose switching together may be refused; what was asked of all is noted."""

    started = False

    def __init__(self, pid: int, done: list[object], sharded: Sequence[int] = ()) -> None:
        self.pid, self.done, self.sharded = pid, done, sharded

    def snapshot(self) -> Diagnosis:
        return msgspec.structs.replace(rank(0), pid=100, anatomy=as_record(anatomy(), Anatomy))

    def together(self, log: str = "") -> str:
        if self.pid in self.sharded:
            raise AutobrrrError("the job's parameters are sharded over the ranks")
        self.done.append("meets")
        return "log"

    def hold(self, held: bool) -> None:
        self.done.append("holds" if held else self.pid)


@pytest.mark.parametrize(("sharded", "goes_on"), [([100, 101], []), ([101], [100, 101])])
def test_ranks_that_can_not_switch_together_are_refused_before_anything_is_measured(
    sharded: list[int], goes_on: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[object] = []
    monkeypatch.setattr(each_rank, "compare_ranks", None)
    clients = {pid: Played(pid, done, sharded) for pid in (100, 101)}
    with pytest.raises(AutobrrrError, match="sharded"):
        each_rank.ready_to_tune(clients, 60.0, lambda pid: print)  # type: ignore[arg-type]
    assert sorted(each for each in done if each != "meets") == goes_on


def test_ranks_measure_nothing_more_once_they_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    monkeypatch.setattr(each_rank, "compare_ranks", lambda *_: done.append("are timed"))
    clients = {pid: Played(pid, done) for pid in (100, 101)}
    each_rank.ready_to_tune(clients, 60.0, lambda pid: print)  # type: ignore[arg-type]
    assert done == ["meets"] * 2 + ["are timed"] + ["holds"] * 2
