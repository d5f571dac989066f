"""Sweeps, collectives, and ranks that are measured one at a time."""

from __future__ import annotations

import pytest

from autobrrr.sidecar.process.session_options import State
from support.sessions.session import Stage
from support.sessions.sidecar import anatomy, probed


def test_a_sweep_is_made_after_all_else_and_shown_beside_the_probe(stage: Stage) -> None:
    stage.enter()
    stage.session.course.sweep()
    stage.traced()
    stage.run(24)
    stage.event("probed", probed(stage.model))
    assert stage.run(4) is State.JUDGED
    assert stage.run(4) is State.SWEEPING
    assert stage.agent.commands[-1] == ("trace", {"sweep": "batch"})
    stage.event("probed", {**probed(stage.model, fixed=0.5), "sweep": "length", "notes": ["4L left out"]})
    assert stage.run(4) is State.JUDGED
    found = stage.session.snapshot()
    assert (found.sweep.along, found.sweep.status, found.sweep.size) == ("length", "ok", stage.model.batch)
    assert found.sweep.ratio_2x == pytest.approx(1.5, rel=0.01)
    assert found.sweep.notes == ["4L left out"]
    assert found.batch_probe.ratio_2x == pytest.approx(1.1, rel=0.01)


@pytest.mark.parametrize("answer", ["refused: busy", None])
def test_a_sweep_that_is_refused_or_never_comes_is_an_abstention(stage: Stage, answer: str | None) -> None:
    stage.measured()
    stage.session.course.sweep()
    assert stage.run(4) is State.SWEEPING
    if answer is not None:
        stage.agent.answer("trace", ok=False, why=answer)
    assert stage.run(4, seconds=130) is State.JUDGED
    found = stage.session.snapshot().sweep
    assert (found.status, found.along) == ("abstained", "batch")
    assert (answer or "in time") in (found.why or "")


def test_collectives_are_timed_after_the_trace_where_ranks_share_gradients(stage: Stage) -> None:
    stage.enter(rank=0, world_size=2).traced(roots=["DistributedDataParallel"])
    assert stage.run(4) is State.TIMING
    assert stage.agent.commands[-1] == ("collectives", {"steps": 16})
    stage.agent.answer("collectives")
    waits = {"status": "ok", "step_ns": [100] * 8, "exposed_ns": [60] * 8, "blocked_ns": [70] * 8}
    stage.event("collectives", waits)
    assert stage.run(4) is State.PROBING
    found = stage.session.snapshot()
    assert found.shares.communication == pytest.approx(0.6)
    assert (found.collectives.waits_ns, found.collectives.own_ns) == (60, 40)


def test_collectives_are_timed_in_every_job_of_several_ranks(stage: Stage) -> None:
    stage.enter(rank=1, world_size=2).traced(roots=["Net"])
    assert stage.run(4) is State.TIMING


def test_collectives_of_a_job_on_a_device_are_timed_before_its_window(stage: Stage) -> None:
    stage.enter(rank=0, world_size=2, cuda=True, device="cuda")
    stage.event("anatomy", anatomy())
    assert stage.run(12) is State.TIMING
    stage.agent.answer("collectives")
    stage.event("collectives", {"status": "abstained", "why": "its collectives run in other streams"})
    assert stage.run(4) is State.PROFILING
    assert stage.session.findings.traced.status == "abstained"


class OneTurn:
    """A turn that another rank may hold."""

    def __init__(self) -> None:
        self.away = True
        self.ours = False

    def take(self, now_ns: int) -> bool:
        self.ours = not self.away
        return self.ours

    def elsewhere(self, now_ns: int) -> bool:
        return self.away

    def give(self) -> None:
        self.ours = False


def test_one_rank_is_measured_at_a_time(stage: Stage) -> None:
    turn = stage.session.findings.turn = OneTurn()
    stage.enter(rank=0, world_size=2)
    stage.event("anatomy", anatomy())
    assert stage.run(12) is State.WATCHING
    assert stage.run(4, seconds=60) is State.WATCHING
    assert stage.session.activity == "waiting until another rank of the job is measured"
    assert "trace" not in stage.agent.asked
    assert stage.session.snapshot().step_ns.count == 0  # steps that another one's measuring has made longer
    turn.away = False
    assert stage.run(4) is State.TRACING
    assert turn.ours
    for command in ("trace", "collectives"):
        assert turn.ours
        stage.agent.answer(command, ok=False, why="not here")
        stage.run(4)
    assert stage.session.state is State.JUDGED
    assert not turn.ours
    assert stage.session.activity == "watching"


def test_a_job_of_one_rank_waits_for_nobody_and_a_session_that_ends_for_nobody_any_more(stage: Stage) -> None:
    turn = stage.session.findings.turn = OneTurn()
    stage.enter()
    stage.event("anatomy", anatomy())
    assert stage.run(12) is State.TRACING
    turn.ours = True
    stage.session.job_ended()
    assert not turn.ours
