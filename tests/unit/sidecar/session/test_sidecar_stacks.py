"""Where the training thread stands is sampled where that explains the step, and while no first step ends."""

from __future__ import annotations

from pathlib import Path

import msgspec

from autobrrr.sidecar.session.session_states import State
from support.judged import diagnosis
from support.sessions.session import Stage
from support.sessions.sidecar import StepModel, anatomy


def test_where_the_main_thread_stands_is_sampled_while_no_step_ends_and_anew_once_steps_come(
    stage: Stage,
) -> None:
    stage.enter()
    assert stage.run(seconds=5) is State.WATCHING
    assert stage.run(seconds=2) is State.SAMPLING
    stage.agent.answer("frames")
    stage.event("frames", msgspec.to_builtins(diagnosis.frames(host=300)))
    assert stage.run() is State.WATCHING
    assert "most at" in stage.session.snapshot().reason
    assert stage.run(seconds=60) is State.WATCHING  # once is enough
    stage.event("anatomy", anatomy())
    assert stage.run(12) is State.TRACING
    assert "most at" not in stage.session.snapshot().reason


def test_stacks_of_before_the_first_step_are_not_taken_for_those_of_steps(stage: Stage) -> None:
    stage.enter()
    assert stage.run(seconds=7) is State.SAMPLING
    stage.event("anatomy", anatomy())
    assert stage.run(12) is State.SAMPLING
    stage.agent.answer("frames")
    stage.event("frames", msgspec.to_builtins(diagnosis.frames(host=300)))
    assert stage.run() is State.WATCHING
    assert stage.run(1) is State.TRACING
    assert stage.session.findings.frames is None


def test_stacks_are_sampled_where_the_loop_waits(tmp_path: Path) -> None:
    model = StepModel(data_wait=0.6, forward=0.15, backward=0.15, optimizer=0.05)
    stage = Stage(tmp_path, model).enter().traced()
    assert stage.run(20) is State.SAMPLING
    assert stage.agent.commands[-1] == ("frames", {"for_ms": 1500, "every_ms": 10})
    stage.event("frames", {"samples": 0, "places": []})
    assert stage.run() is State.PROBING


def test_stacks_are_sampled_where_operators_do_not_explain_a_phase(stage: Stage) -> None:
    step_ns = stage.model.step_ns
    kernels = {"forward": 0.35 * step_ns, "backward": 0.01 * step_ns, "optimizer": 0.15 * step_ns}
    stage.enter().traced(kernel_by_phase_ns=kernels, operations_by_phase={"backward": 10.0}, op_cost_ns=2_000)
    assert stage.run(20) is State.SAMPLING


def test_stacks_are_sampled_where_forward_pauses_between_two_networks(stage: Stage) -> None:
    stage.enter().traced(between_ns=0.2 * stage.model.step_ns)
    assert stage.run(20) is State.SAMPLING
