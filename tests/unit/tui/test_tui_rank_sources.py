"""A screen finds the other ranks of its job, and has them compared where nobody has done so."""

from __future__ import annotations

import threading

import msgspec
import pytest

from autobrrr.records import Anatomy, Diagnosis, LateRank, RankLine
from autobrrr.records.record_base import as_record
from autobrrr_tui.sources.live_source import Siblings
from autobrrr_tui.view_state import View
from support.screens import tui
from support.sessions.client import PlayedClient
from support.sessions.sidecar import anatomy


def rank_of(rank: int, pid: int, straggler: LateRank | None = None) -> Diagnosis:
    """The session of one rank of three."""
    lines = [RankLine(rank=each, pid=8091 + each, slowest=each == 1) for each in range(2)]
    return tui.snapshot(
        pid=pid,
        job=tui.job(rank=rank, world_size=3),
        anatomy=as_record(anatomy(), Anatomy),
        ranks=None if straggler is None else lines,
        straggler=straggler,
    )


LATE = LateRank(rank=1, pid=8092, cause="loader", when="always", compared=2, world_size=3)


class Others(PlayedClient):
    """The other ranks' sessions, what was joined and what was compared."""

    def __init__(self, told: Diagnosis) -> None:
        self.joined: list[int] = []
        self.compared: list[list[int]] = []
        self.told = told
        self.siblings = Siblings(
            lambda pid: [8092], self._join, lambda pids: self.compared.append(list(pids))
        )  # type: ignore[arg-type]

    def _join(self, pid: int) -> Others:
        self.joined.append(pid)
        return self

    def snapshot(self) -> Diagnosis:
        return self.told

    def looked(self, own: Diagnosis) -> View:
        """One look, on this thread."""
        self.siblings._thread = threading.Thread()
        view = self.siblings.look(tui.judged(snapshot=own))
        self.siblings._left.set()  # after one turn
        self.siblings._watch(8091)
        assert view.snapshot is not None
        return self.siblings.look(view)


def test_other_ranks_are_found_among_the_sessions_that_are_there() -> None:
    others = Others(rank_of(1, 8092, LATE))
    view = others.looked(rank_of(0, 8091, LATE))
    assert others.joined == [8092]
    assert [(each.rank, each.pid, each.slowest) for each in view.ranks] == [(0, 8091, False), (1, 8092, True)]
    assert view.snapshot.straggler == LATE
    assert others.compared == []  # they have been
    changed = others.siblings.look(tui.judged(snapshot=rank_of(0, 8091)))
    assert not any(each.slowest for each in changed.ranks)  # the job is no longer what was compared


def test_ranks_that_were_not_compared_are_once_a_screen_shows_them() -> None:
    others = Others(rank_of(1, 8092))
    assert not any(each.slowest for each in others.looked(rank_of(0, 8091)).ranks)
    assert others.compared == [[8091, 8092]]
    unknown = Others(msgspec.structs.replace(rank_of(1, 8092), anatomy=None))
    unknown.looked(rank_of(0, 8091))
    assert unknown.compared == []  # it does not know its loop yet
    tuned = Others(msgspec.structs.replace(rank_of(1, 8092), state="tuning"))
    tuned.looked(rank_of(0, 8091))
    assert tuned.compared == []  # a tuner compares steps of all ranks


def test_a_job_of_one_rank_looks_for_no_others() -> None:
    view = tui.judged()
    assert Siblings(lambda pid: pytest.fail("asked for them")).look(view) == view
