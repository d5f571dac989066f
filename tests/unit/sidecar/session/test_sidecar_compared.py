"""A session waits for the other ranks, times its steps while they do, and goes on where it stood."""

from __future__ import annotations

from pathlib import Path

import pytest

from autobrrr.records import CollectiveWaits, LateRank, RankLine, RanksCompared
from autobrrr.sidecar.process.session_options import State
from support.sessions.session import Stage
from support.sessions.sidecar import anatomy, traced

WAITS = {"status": "ok", "step_ns": [100] * 8, "exposed_ns": [60] * 8, "blocked_ns": [70] * 8}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    stage.enter(rank=0, world_size=2)
    return stage


def timed(stage: Stage) -> None:
    """The agent has timed what it was asked for."""
    stage.agent.answer("collectives")
    stage.event("collectives", WAITS)


def test_a_session_that_is_held_begins_nothing_for_a_minute(stage: Stage) -> None:
    stage.session.course.hold()
    stage.event("anatomy", anatomy())
    assert stage.run(12, seconds=30) is State.WATCHING
    assert stage.run(4, seconds=29) is State.WATCHING
    assert "trace" not in stage.agent.asked
    assert stage.run(4, seconds=2) is State.TRACING


def test_steps_are_timed_before_all_else_and_not_once_more(stage: Stage) -> None:
    found: list[CollectiveWaits] = []
    stage.session.course.hold()
    stage.event("anatomy", anatomy())
    stage.run(12)
    assert stage.session.compare(0, found.append) is None
    assert stage.run(4) is State.TIMING
    assert stage.agent.commands[-1] == ("collectives", {"steps": 16})
    assert stage.session.compare(0, found.append) == "another comparison is under way"
    timed(stage)
    assert stage.run(1) is State.WATCHING
    assert stage.run(1) is State.TRACING
    assert [each.step_ns for each in found] == [[100] * 8]
    stage.agent.answer("trace")
    stage.event("traced", traced(stage.model))
    assert stage.run(4) is State.PROBING
    assert stage.agent.asked.count("collectives") == 1


def test_what_is_being_measured_comes_to_its_end_first_and_goes_on_afterwards(stage: Stage) -> None:
    stage.event("anatomy", anatomy())
    assert stage.run(12) is State.TRACING
    stage.session.course.hold()
    stage.agent.answer("trace")
    stage.event("traced", traced(stage.model))
    assert stage.run(4, seconds=5) is State.TRACING, "held"
    found: list[CollectiveWaits] = []
    assert stage.session.compare(0, found.append) is None
    assert stage.run(1) is State.TIMING
    timed(stage)
    stage.run(2)
    assert len(found) == 1
    assert stage.run(4) is State.PROBING


def test_a_session_that_has_measured_all_is_compared_and_watches_on(stage: Stage) -> None:
    stage.event("anatomy", anatomy())
    stage.run(12)
    for command in ("trace", "collectives"):
        stage.agent.answer(command, ok=False, why="not here")
        stage.run(4)
    assert stage.session.state is State.JUDGED
    found: list[CollectiveWaits] = []
    assert stage.session.compare(0, found.append) is None
    assert stage.run(1) is State.TIMING
    timed(stage)
    assert stage.run(1) is State.JUDGED
    assert found[0].status == "ok"


def test_a_rank_that_can_not_be_timed_says_so_and_goes_on(stage: Stage) -> None:
    stage.session.course.hold()
    stage.event("anatomy", anatomy())
    stage.run(12)
    found: list[CollectiveWaits] = []
    assert stage.session.compare(0, found.append) is None
    stage.run(1)
    stage.agent.answer("collectives", ok=False, why="the parameters are on cuda")
    assert stage.run(1) is State.WATCHING
    assert stage.run(1) is State.TRACING
    assert (found[0].status, found[0].why) == ("abstained", "the parameters are on cuda")


COMPARED = RanksCompared(
    straggler=LateRank(rank=1, pid=2, cause="loader"),
    ranks=[RankLine(rank=0, pid=1, slowest=False), RankLine(rank=1, pid=2, slowest=True)],
)


def test_a_session_shows_what_came_of_a_comparison_until_its_job_is_changed(stage: Stage) -> None:
    assert stage.session.snapshot().straggler is None
    stage.session.take_comparison(COMPARED)
    shown = stage.session.snapshot()
    assert (shown.straggler, shown.ranks) == (COMPARED.straggler, COMPARED.ranks)
    stage.event("together", None)
    assert stage.session.snapshot().straggler is None
    assert stage.session.snapshot().ranks is None


def test_a_comparison_of_the_job_before_it_was_changed_is_not_taken(stage: Stage) -> None:
    stage.session.course.hold()
    stage.event("anatomy", anatomy())
    stage.run(12)
    assert stage.session.compare(0, lambda found: None) is None
    stage.event("together", None)
    stage.session.take_comparison(COMPARED)
    assert stage.session.snapshot().straggler is None
    stage.run(4)
    timed(stage)
    stage.run(2)
    assert stage.session.compare(0, lambda found: None) is None
    stage.session.take_comparison(COMPARED)
    assert stage.session.snapshot().straggler == COMPARED.straggler
