"""A session goes its course: trace, sample, probe, judge; and ends in order, whatever happens."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest

from autobrrr.agent.wire import ring_layout
from autobrrr.records import ProfilerWindow, ShadowProbe
from autobrrr.records.wire_answers import ActiveRemedy, RemedyOutcome, SessionEnding
from autobrrr.sidecar.process.session_options import State
from autobrrr.sidecar.process.step_replayer import StepReplay
from support.sessions.service import TRIAL
from support.sessions.session import Stage
from support.sessions.sidecar import StepModel, anatomy, cost, probed, traced

PLANNED = {"token": 3, "remedy": "gc.freeze", "options": {}, "class": "bitwise", "reach": "live"}


def test_no_snapshot_says_that_no_step_has_ended_beside_figures_of_some(stage: Stage) -> None:
    none = "no step has ended since attach"
    stage.enter().run()
    assert none in stage.session.snapshot().reason
    stage.run(8)  # the verdict was made a tenth of a second ago
    found = stage.session.snapshot()
    assert (found.steps, found.step_ns.count) == (8, 8)
    assert none not in found.reason + found.limit_reason


def test_steps_that_do_not_count_are_said_to_have_ended(stage: Stage) -> None:
    stage.enter().run(8, flags=ring_layout.TRACED)
    found = stage.session.snapshot()
    assert (found.steps, found.step_ns.count) == (8, 0)
    assert "no step counts yet (8 since attach)" in found.reason


def test_overhead_by_trace_and_probe_is_named_with_high_confidence(stage: Stage) -> None:
    stage.measured()
    stage.run(50, seconds=3)
    found = stage.session.snapshot()
    assert (found.regime, found.confidence) == ("overhead", "high"), found.reason
    assert found.batch_probe.status == "ok"
    assert found.steps == stage.writer.seq
    assert found.state == "judged"
    assert found.phases_ns.forward is not None
    assert found.step_ns.mean == stage.model.step_ns
    assert found.attach.pause_ns == 400_000
    assert (found.final, found.pid) == (False, 42)
    assert stage.session.decided
    assert stage.journal("verdict")[-1]["regime"] == "overhead"
    assert stage.said


def test_before_anything_is_measured_there_is_a_snapshot_that_says_so(stage: Stage) -> None:
    found = stage.session.snapshot()
    assert (found.regime, found.activity, found.steps) == ("unknown", "waiting for the first steps", None)
    assert not stage.session.decided


def test_a_window_that_is_refused_or_never_comes_does_not_hold_the_course_up(stage: Stage) -> None:
    stage.enter(compiled=True)
    stage.event("anatomy", anatomy())
    stage.run(12)
    stage.agent.answer("window", ok=False, why="refused: the session is read-only")
    assert stage.run(12) is State.JUDGED
    assert stage.session.findings.profile == ProfilerWindow(
        status="abstained", why="refused: the session is read-only"
    )
    stage.session.course.open_window()
    assert stage.run(12) is State.PROFILING
    assert stage.run(12, seconds=60) is State.JUDGED
    assert stage.session.findings.profile.why == "the window did not come in time"  # type: ignore[union-attr]


def test_a_window_is_opened_on_request_after_what_is_under_way(stage: Stage) -> None:
    stage.enter()
    stage.event("anatomy", anatomy())
    assert stage.run(12) is State.TRACING
    stage.session.course.open_window()
    stage.agent.answer("trace")
    stage.event("traced", traced(stage.model))
    assert stage.run(24) is State.PROFILING
    stage.window(ProfilerWindow(status="abstained", why="the job is being profiled already"))
    assert stage.run(24) is State.PROBING
    stage.event("probed", probed(stage.model))
    assert stage.run(24) is State.JUDGED
    assert stage.agent.asked.count("window") == 1


def test_no_window_is_opened_read_only_or_while_tuning(tmp_path: Path) -> None:
    readonly = Stage(tmp_path, readonly=True).enter(compiled=True)
    readonly.event("anatomy", anatomy())
    assert readonly.run(12) is State.JUDGED
    assert readonly.session.busy == "the session is read-only"
    tuned = Stage(tmp_path).measured()
    assert tuned.session.begin_tuning() is None
    assert tuned.session.busy == "the session is tuning"


def test_a_read_only_session_neither_traces_nor_probes_nor_switches(tmp_path: Path) -> None:
    stage = Stage(tmp_path, readonly=True).enter()
    stage.event("anatomy", anatomy())
    assert stage.run(12) is State.JUDGED
    stage.run(100, seconds=400)
    done: list[RemedyOutcome] = []
    stage.session.active.apply("gc.freeze", {}, done.append)
    assert done[0].why == "the session is read-only"
    assert set(stage.agent.asked) == {"facts", "frames"}
    assert stage.session.begin_tuning() == "the session is read-only"


def test_what_a_recorded_step_tells_is_added_to_the_traced_ones(stage: Stage) -> None:
    stage.enter().traced(work=[])
    row = {"op": "aten.mm.default", "phase": "forward", "shapes": "8x8 8x8", "dtype": "float32"}
    row |= {"count": 1.0, "kernel_ns": 10.0, "flops": 1024.0, "bytes": 768.0, "alone_ns": 9.0}
    told = {"work": [row], "probe": {**probed(stage.model)}}
    stage.session.replay = lambda recorded, fd, done: done(
        msgspec.convert({"work": [row], "more": True}, StepReplay)
    )
    stage.event("recorded", {"status": "ok"})
    assert stage.session.findings.replaying
    assert stage.session.findings.probe is None
    stage.session.replay = lambda recorded, fd, done: done(msgspec.convert(told, StepReplay))
    stage.event("recorded", {"status": "ok"})
    stage.run(1)
    found = stage.session.findings
    assert found.traced is not None
    assert [each.op for each in found.traced.work] == [row["op"]]
    assert found.probe is not None
    assert not found.replaying
    assert len(stage.journal("traced")) == 3
    stage.session.replay = lambda recorded, fd, done: done(
        StepReplay(probe=ShadowProbe(status="abstained", why=str(recorded["why"])))
    )
    assert stage.session.begin_tuning() is None
    stage.event("recorded", {"status": "ok"})  # nothing of ours runs beside what is compared
    assert found.probe.status == "ok"
    stage.event("traced", traced(stage.model))
    assert found.traced.work, "until those of its own come"


@pytest.mark.integration  # a long simulation
def test_doubt_is_met_with_further_traces_ever_more_rarely(tmp_path: Path) -> None:
    stage = Stage(tmp_path, StepModel(kernels=0.6)).measured()
    traces: list[int] = []
    for second in range(100):
        if stage.run(20, seconds=1) is State.TRACING:
            traces.append(second)
            stage.event("traced", traced(stage.model))
            stage.run(20, seconds=0)
    assert stage.session.snapshot().confidence == "low"
    gaps = [later - earlier for earlier, later in itertools.pairwise(traces)]
    assert len(traces) >= 3
    assert gaps == sorted(gaps)
    probing = [fields["probe"] for name, fields in stage.agent.commands if name == "trace"]
    assert probing == [True] + [False] * len(traces)


def test_a_job_that_changes_its_pace_for_good_is_measured_anew(stage: Stage) -> None:
    stage.measured()
    stage.run(200, seconds=61)
    assert stage.session.state is State.JUDGED
    stage.model.step_ns *= 3
    for _ in range(20):
        stage.run(600, seconds=1)
    assert stage.agent.asked.count("trace") == 2


def test_a_remedy_makes_what_was_measured_without_it_void(stage: Stage) -> None:
    stage.measured()
    done: list[RemedyOutcome] = []
    stage.session.active.apply("optimizer.fused", {}, done.append)
    wanted = {"remedy": "optimizer.fused", "options": {}, "allowed": None, "prepare": False}
    assert stage.agent.commands[-1] == ("apply", wanted)
    stage.agent.answer("apply", token=7, arm=1, seq=70, **{"class": "rounding"})
    assert (done[0].why, done[0].token, done[0].seq) == (None, 7, 70)
    assert stage.session.snapshot().active == ["optimizer.fused"]
    assert stage.run(12, arm=1, flags=ring_layout.SWITCHED) is State.WATCHING
    assert stage.run(12, arm=1) is State.TRACING
    stage.session.active.undo(7, done.append)
    stage.agent.answer("undo", arm=2, seq=90)
    assert stage.session.snapshot().active == []
    assert done[-1].seq == 90


@pytest.mark.parametrize("tuned", [True, False])
def test_what_was_under_way_when_the_job_was_changed_is_measured_anew(stage: Stage, tuned: bool) -> None:
    stage.enter().traced()
    assert stage.run(24) is State.PROBING
    if tuned:
        assert stage.session.begin_tuning() is None
    stage.session.active.apply("optimizer.fused", {}, lambda done: None)
    stage.event("probed", probed(stage.model))  # the agent ends it, then switches
    stage.agent.answer("apply", token=7, arm=1, seq=70)
    stage.session.end_tuning()
    for _ in range(4):
        stage.run(24, arm=1)
    assert stage.session.state is State.TRACING
    assert stage.session.findings.traced is None
    assert stage.agent.asked.count("trace") == 2


def test_a_refused_remedy_is_not_on(stage: Stage) -> None:
    stage.measured()
    done: list[RemedyOutcome] = []
    stage.session.active.apply("optimizer.fused", {}, done.append)
    stage.agent.answer("apply", ok=False, why="refused: no optimizer")
    assert done[0].why == "refused: no optimizer"
    assert stage.session.snapshot().active == []
    assert stage.session.state is State.JUDGED


def test_a_lost_remedy_is_said_and_no_longer_listed(stage: Stage) -> None:
    stage.measured()
    stage.session.active.apply("gc.freeze", {}, lambda done: None)
    stage.agent.answer("apply", token=1, arm=1, seq=70)
    stage.session.on_event({"event": "remedy_lost", "token": 1, "remedy": "gc.freeze", "why": "collected"})
    assert stage.session.snapshot().active == []
    assert stage.said[-1] == "gc.freeze was lost: collected"


def test_what_another_rank_has_switched_on_all_ranks_is_listed(stage: Stage) -> None:
    stage.measured()
    done: list[RemedyOutcome] = []
    stage.session.active.together("", done.append)
    stage.agent.answer("together", rank=1, ranks=2)
    assert done[0].why is None
    on = {"token": 4, "remedy": "optimizer.fused", "options": {}, "class": "rounding", "reach": "live"}
    stage.session.on_event({"event": "together", "active": [{**on, "planned": False}]})
    assert stage.session.snapshot().active == ["optimizer.fused"]
    assert stage.said[-1] == "another rank has switched all ranks; applied: optimizer.fused"
    stage.session.on_event({"event": "together", "active": []})
    assert stage.session.snapshot().active == []
    assert stage.said[-1].endswith("applied: nothing")


@pytest.mark.parametrize(
    ("keep", "left", "on"),
    [(False, [], []), (True, [], ["gc.freeze"]), (False, ["gc.freeze"], ["gc.freeze"])],
)
def test_the_last_snapshot_lists_only_what_is_still_on(
    stage: Stage, keep: bool, left: list[str], on: list[str]
) -> None:
    stage.measured()
    stage.session.active.apply("gc.freeze", {}, lambda done: None)
    stage.agent.answer("apply", token=1, arm=1, seq=70)
    stage.session.detach(keep, lambda ending: None)
    stage.agent.answer("detach", left=left)
    assert stage.session.snapshot().state == "ended"
    assert stage.session.snapshot().active == on


def test_remedies_that_a_recipe_has_switched_on_before_are_known(stage: Stage) -> None:
    stage.enter()
    stage.agent.answer("facts", active=[PLANNED], anatomy=anatomy())
    assert stage.session.snapshot().active == ["gc.freeze"]
    assert stage.session.snapshot().anatomy is not None


@pytest.mark.parametrize("keep", [True, False])
def test_what_a_recipe_has_on_is_on_after_a_detach_too(stage: Stage, keep: bool) -> None:
    stage.enter()
    stage.agent.answer("facts", active=[PLANNED], anatomy=None)
    stage.session.active.apply("optimizer.fused", {}, lambda done: None)
    stage.agent.answer("apply", token=4, arm=2, seq=70)
    endings: list[SessionEnding] = []
    stage.session.detach(keep, endings.append)
    stage.agent.answer("detach", left=[])
    on = ["gc.freeze", "optimizer.fused"] if keep else ["gc.freeze"]
    assert endings[0].on == tuple(on)
    assert stage.session.snapshot().active == on


def test_while_the_tuner_works_nothing_else_is_measured(stage: Stage) -> None:
    stage.measured()
    assert stage.session.begin_tuning() is None
    before = len(stage.agent.commands)
    stage.session.measure_again()
    assert stage.run(100, seconds=100, arm=1) is State.TUNING
    assert len(stage.agent.commands) == before
    stage.session.end_tuning()
    assert stage.run(20, arm=1) is State.JUDGED


def test_after_a_tuning_the_verdict_stands_for_a_minute_and_nothing_is_traced(stage: Stage) -> None:
    stage.measured()
    before = stage.session.snapshot()
    assert stage.session.begin_tuning() is None
    stage.session.active.apply("optimizer.fused", {}, lambda done: None)
    stage.agent.answer("apply", token=7, arm=1, seq=70)
    stage.session.end_tuning()
    assert stage.run(20, seconds=30, arm=1) is State.JUDGED
    found = stage.session.snapshot()
    assert (found.regime, found.confidence) == (before.regime, before.confidence) == ("overhead", "high")
    assert found.step_ns.count == 20
    stage.run(20, seconds=40, arm=1)
    assert stage.run(20, arm=1) is State.TRACING


def test_a_trial_overrules_what_was_predicted(stage: Stage) -> None:
    stage.measured()
    first, *others = stage.session.snapshot().advice
    assert stage.session.begin_tuning() is None
    lost = msgspec.structs.replace(TRIAL, remedy=first.remedy, achieved=0.89, outcome="undone")
    stage.session.record(lost)
    assert stage.session.snapshot().advice == others
    stage.session.record(msgspec.structs.replace(lost, achieved=1.25, outcome="kept"))
    assert stage.session.snapshot().advice[0].expected == 1.25


def test_detach_asks_the_agent_and_ends_with_what_it_left(stage: Stage) -> None:
    stage.measured()
    endings: list[SessionEnding] = []
    stage.session.detach(True, endings.append)
    stage.session.detach(False, endings.append)
    assert stage.run() is State.DETACHING
    assert stage.agent.commands[-1] == ("detach", {"keep": True})
    stage.agent.answer("detach", left=[])
    assert stage.session.state is State.ENDED
    assert [(each.kind, each.left) for each in endings] == [("detached", ())] * 2
    stage.session.detach(False, endings.append)
    assert len(endings) == 3
    assert stage.session.snapshot().final is True
    (ended,) = stage.journal("ended")
    assert (ended["kind"], ended["why"], ended["left"], ended["on"]) == ("detached", "detached", [], [])
    assert stage.journal("snapshot")[-1]["regime"] == "overhead"


def test_an_agent_that_does_not_answer_the_detach_is_left_by_name(stage: Stage) -> None:
    stage.measured()
    endings: list[SessionEnding] = []
    stage.session.detach(False, endings.append)
    stage.run(seconds=14)
    assert not endings
    stage.run(seconds=2)
    assert endings[0].left == ("the agent",)
    assert endings[0].why == "the agent did not answer"


@pytest.mark.parametrize("answers", [False, True])
def test_what_a_detach_waits_for_is_shown_meanwhile_and_said_at_its_end(stage: Stage, answers: bool) -> None:
    stage.measured()
    stage.session.on_event({"event": "awaits", "why": "of another time"})
    endings: list[SessionEnding] = []
    stage.session.detach(False, endings.append)
    stage.session.on_event({"event": "awaits", "why": "the job compiles"})
    assert stage.session.activity == "detaching: the job compiles"
    if answers:
        stage.agent.answer("detach", left=["optimizer.foreach (undone at the next step)"])
    else:
        stage.run(seconds=16)
    assert [(len(each.left), each.why) for each in endings] == [(1, "the job compiles")]


def test_a_link_that_ends_with_the_job_is_the_job_s_end(stage: Stage) -> None:
    stage.measured()
    stage.session.link_lost()
    assert stage.run() is State.JUDGED
    stage.alive = False
    assert stage.run() is State.ENDED
    found = stage.session.snapshot()
    assert (found.activity, found.final, found.regime) == ("job ended", True, "overhead")


def test_a_link_that_ends_while_the_job_lives_is_lost(stage: Stage) -> None:
    stage.measured()
    stage.session.link_lost()
    assert stage.run(seconds=0.5) is State.JUDGED
    assert stage.run(seconds=1) is State.ENDED
    assert stage.session.ending is not None
    assert stage.session.ending.kind == "link lost"


def test_a_link_that_ends_during_the_detach_is_the_agent_leaving(stage: Stage) -> None:
    stage.measured()
    endings: list[SessionEnding] = []
    stage.session.detach(False, endings.append)
    stage.session.link_lost()
    stage.run()
    assert (endings[0].kind, endings[0].left) == ("detached", ())


def test_an_agent_that_removes_itself_ends_the_session_with_its_reason(stage: Stage) -> None:
    stage.measured()
    stage.session.on_event({"event": "removed", "why": "TypeError in a hook"})
    assert stage.session.ending is not None
    assert stage.session.ending.kind == "removed"
    assert "TypeError" in stage.session.ending.why


def test_an_event_that_can_not_be_read_is_noted_and_the_session_goes_on(stage: Stage) -> None:
    stage.enter()
    stage.event("traced", {"status": 5})
    stage.session.on_event({"event": "something new"})
    assert "can't be read" in stage.said[0]
    assert stage.run(12) is State.WATCHING


def test_a_fault_in_judging_is_said_and_the_session_goes_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(measured: object) -> None:
        raise ZeroDivisionError("no steps")

    monkeypatch.setattr("autobrrr.sidecar.session.session.judge", fail)
    stage.enter()
    stage.run(12)
    assert stage.said == ["the verdict stays as it is, judging failed: ZeroDivisionError: no steps"]
    assert "Traceback" in capsys.readouterr().err
    assert stage.session.snapshot().regime == "unknown"


def test_what_the_agent_costs_is_shown_as_a_share_of_the_step(stage: Stage) -> None:
    stage.enter()
    stage.event("cost", cost())
    stage.run(12)
    found = stage.session.snapshot()
    assert found.cost.ns_per_step == 1000
    assert found.cost.share == pytest.approx(1000 / stage.model.step_ns)
    assert found.cost.one_off_ns == found.attach.pause_ns == 400_000
    stage.event("cost", {**cost(), "one_off_ns": 7_000_000})
    stage.run(1)
    found = stage.session.snapshot()
    assert found.cost.one_off_ns == 7_400_000
    assert found.cost.session_share == pytest.approx((1000 * found.steps + 7_400_000) / found.t_ns)
    assert found.cost.words.endswith(" while attached, plus 7.40 ms of pauses")
    stage.own_cpu_ns = 900_000_000
    assert stage.session.snapshot().cost.cpu_ns == 900_000_000


def test_from_outside_only_the_machine_is_seen_and_no_regime_is_named(tmp_path: Path) -> None:
    stage = Stage(tmp_path, outside=True)
    stage.session.entered_outside()
    for _ in range(10):
        stage.run(seconds=1)
    found = stage.session.snapshot()
    assert (found.regime, found.steps, found.attach.method) == ("unknown", None, "outside")
    assert found.host is not None
    assert found.host.cpu_share == 1.0
    assert stage.session.decided
    endings: list[SessionEnding] = []
    stage.session.detach(False, endings.append)
    assert endings[0].kind == "detached"


def test_a_job_that_ends_before_any_verdict_has_decided_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path).enter()
    stage.run(2)
    stage.session.job_ended()
    assert stage.session.state is State.ENDED
    assert not stage.session.decided
    assert stage.session.snapshot().activity == "job ended"


@pytest.mark.parametrize(
    ("now", "killed", "why"),
    [
        (0, False, "process 42 ended while gc.freeze was on"),
        (
            1,
            True,
            "process 42 ended while gc.freeze was on: the kernel killed one of its processes because memory "
            "was full (oom_kill)",
        ),
        (None, None, "process 42 ended while gc.freeze was on"),
    ],
)
def test_a_job_that_ends_under_a_remedy_names_it_and_a_kill_for_memory(
    now: int | None, killed: bool | None, why: str, tmp_path: Path
) -> None:
    stage = Stage(tmp_path).enter()
    stage.session.active.on[1] = msgspec.convert(PLANNED, ActiveRemedy)
    stage.oom_kills = now
    stage.session.job_ended()
    assert stage.session.ending is not None
    assert stage.session.ending.why == why
    assert (stage.session.ending.under, stage.session.ending.oom_kill) == (("gc.freeze",), killed)
