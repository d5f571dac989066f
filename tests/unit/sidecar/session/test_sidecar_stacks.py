"""Where the training thread stands is sampled first of all, and while no first step ends."""

from __future__ import annotations

import msgspec

from autobrrr.sidecar.process.session_options import State
from support.judged import diagnosis
from support.sessions.session import Stage
from support.sessions.sidecar import anatomy


def test_where_the_main_thread_stands_is_sampled_while_no_step_ends_and_anew_once_steps_come(
    stage: Stage,
) -> None:
    stage.samples_at_once = False
    stage.enter()
    assert stage.run(seconds=5) is State.WATCHING
    assert stage.run(seconds=2) is State.SAMPLING
    stage.agent.answer("frames")
    stage.event("frames", msgspec.to_builtins(diagnosis.frames(host=300)))
    assert stage.run() is State.WATCHING
    assert "most at" in stage.session.snapshot().reason
    assert stage.run(seconds=60) is State.WATCHING  # once is enough
    stage.event("anatomy", anatomy())
    assert stage.run(12) is State.SAMPLING
    assert "most at" not in stage.session.snapshot().reason


def test_stacks_of_before_the_first_step_are_not_taken_for_those_of_steps(stage: Stage) -> None:
    stage.samples_at_once = False
    stage.enter()
    assert stage.run(seconds=7) is State.SAMPLING
    stage.event("anatomy", anatomy())
    assert stage.run(12) is State.SAMPLING
    stage.agent.answer("frames")
    stage.event("frames", msgspec.to_builtins(diagnosis.frames(host=300)))
    assert stage.run() is State.WATCHING
    assert stage.run(1) is State.SAMPLING
    assert stage.session.findings.frames is None


def test_stacks_are_sampled_before_anything_makes_a_step_longer(stage: Stage) -> None:
    stage.samples_at_once = False
    stage.enter()
    stage.event("anatomy", anatomy())
    assert stage.run(12) is State.SAMPLING
    usual_ns = int(stage.session.findings.window.median_ns or 0)
    asked = {"for_ms": 1500, "every_ms": 10, "usual_ns": usual_ns}
    assert stage.agent.commands[-1] == ("frames", asked)
    stage.agent.answer("frames")
    stage.event("frames", msgspec.to_builtins(diagnosis.frames(host=100, model=50)))
    assert stage.run(4) is State.TRACING
    (row, *_) = stage.session.snapshot().where
    assert (row.place, row.share, row.phase) == ("train.py:77 log_metrics", 0.6667, "other")
