"""What is measured, in which order, how long it is waited for, and what is judged meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from autobrrr.agent.wire import ring_layout
from autobrrr.records import ProfilerWindow
from autobrrr.sidecar.process.session_options import SessionOptions, State
from autobrrr.sidecar.session.collected import Collected
from support.judged import diagnosis
from support.machines.devices import AbsentDevice
from support.sessions.session import SECOND_NS, Stage
from support.sessions.sidecar import StepModel, anatomy, traced


def test_it_waits_for_steps_and_anatomy_before_it_traces(stage: Stage) -> None:
    stage.enter()
    assert stage.run() is State.WATCHING
    assert stage.session.activity == "waiting for the first steps"
    assert stage.run(20) is State.WATCHING
    assert stage.session.activity == "finding out how the loop is built"
    stage.event("anatomy", anatomy())
    assert stage.run() is State.TRACING
    assert stage.agent.commands[-1] == ("trace", {"steps": 4, "probe": True})


def test_few_long_steps_are_traced_at_once_and_more_where_doubt_remains(tmp_path: Path) -> None:
    stage = Stage(tmp_path, StepModel(step_ns=SECOND_NS // 2)).enter()
    stage.event("anatomy", anatomy())
    assert stage.run(3, flags=ring_layout.SETTLING) is State.WATCHING
    assert stage.run(1, flags=ring_layout.SETTLING) is State.TRACING
    assert stage.agent.commands[-1] == ("trace", {"steps": 3, "probe": True})
    stage.agent.answer("trace", ok=False, why="the job is being profiled")
    stage.run(2)
    assert stage.run(2) is State.JUDGED
    assert stage.run(2, seconds=6) is State.TRACING
    assert stage.agent.commands[-1] == ("trace", {"steps": 4, "probe": False})


def test_a_refused_trace_becomes_an_abstention_with_its_reason(stage: Stage) -> None:
    soon: list[bool] = []
    stage.session.course.expect_replay = soon.append
    stage.enter()
    stage.event("anatomy", anatomy())
    stage.run(12)
    stage.agent.answer("trace", ok=False, why="another mode is on the stack")
    assert stage.run() is State.JUDGED
    found = stage.session.findings
    assert (found.traced.status, found.traced.why) == ("abstained", "another mode is on the stack")
    assert stage.session.snapshot().batch_probe.why == "another mode is on the stack"
    assert soon == [True, False]  # no process waits beside the job for a record


def test_what_the_traced_steps_show_so_far_is_judged_before_their_shapes_come(stage: Stage) -> None:
    stage.enter()
    stage.event("anatomy", anatomy())
    assert stage.run(12) is State.TRACING
    stage.agent.answer("trace")
    so_far = {**traced(StepModel()), "work": []}
    stage.event("tracing", so_far)
    stage.run(1)
    found = {each.signal: each for each in stage.session.snapshot().evidence}
    assert found["traced_steps"].value is not None
    assert "the shapes of its operators were not read" in found["roofline"].note
    assert stage.session.state is State.TRACING
    assert not stage.journal("tracing")
    stage.event("traced", {"status": "abstained", "why": "another mode was entered"})
    stage.run(1)
    found = {each.signal: each for each in stage.session.snapshot().evidence}
    assert found["traced_steps"].value is None


def test_a_trace_that_others_disturbed_is_taken_again_once_the_machine_is_quiet(stage: Stage) -> None:
    stage.enter().traced(run_delay_share=0.8)
    assert stage.run(12) is State.PROBING
    stage.event("probed", {"status": "abstained", "why": "collectives"})
    assert stage.run(12) is State.JUDGED

    def machine(delay: float) -> None:
        stage.session._device = AbsentDevice()
        stage.session.findings.host = tuple(diagnosis.machine(delay)[:4])

    machine(0.5)
    for _ in range(8):
        assert stage.run(4, seconds=2) is State.JUDGED
    machine(0.0)
    assert stage.run(4, seconds=1) is State.TRACING


def test_an_answer_that_never_comes_holds_nothing_up(stage: Stage) -> None:
    stage.enter()
    stage.event("anatomy", anatomy())
    stage.run(12)
    assert stage.run(12, seconds=29) is State.TRACING
    assert stage.run(12, seconds=2) is State.JUDGED
    assert stage.session.snapshot().batch_probe.why == "the traced steps did not come in time"


@pytest.mark.parametrize(
    ("changes", "built", "reason"),
    [({"compiled": True}, {}, "compile"), ({}, {"compiled": True}, "compile"), ({"cuda": True}, {}, "GPU")],
)
def test_compiled_and_gpu_jobs_are_profiled_instead_of_traced_and_probed(
    stage: Stage, changes: dict[str, object], built: dict[str, object], reason: str
) -> None:
    stage.enter(**changes)
    stage.event("anatomy", anatomy(**built))
    assert stage.run(12) is State.PROFILING
    assert "training will stall" in stage.session.activity
    assert stage.agent.commands[-1] == ("window", {"steps": 4, "shapes": False, "asked": False})
    stage.window(ProfilerWindow(status="ok", inside_share=0.5, stall_ns=80_000_000))
    asked = {"facts", "frames", "window"}
    if reason == "GPU":  # steps are timed by its clock
        asked |= {"stamp", "slack"}
        assert stage.run(12) is State.DELAYING
        stage.agent.answer("slack", ok=False, why="refused")
    assert stage.run(12) is State.JUDGED
    assert stage.session.snapshot().window == stage.session.findings.profile
    assert set(stage.agent.asked) == asked
    assert reason in (stage.session.findings.traced.why or "")  # type: ignore[union-attr]
    stage.run(100, seconds=400)
    assert stage.agent.asked.count("window") == 1
    assert len(stage.journal("window")) == 1


@pytest.mark.parametrize(("threads", "foreign_cores"), [(4, 0.7), (2, None)])
def test_what_others_ran_beside_traced_steps_is_told_where_threads_outnumber_the_cpus(
    threads: int, foreign_cores: float | None
) -> None:
    findings = Collected(42, SessionOptions(), cores=2)
    findings.facts = diagnosis.facts(threads=threads)
    findings.host = tuple(diagnosis.machine(foreign_cores=0.7))
    assert findings.take("traced", {"traced": traced(StepModel())})
    assert findings.traced.foreign_cores == foreign_cores
