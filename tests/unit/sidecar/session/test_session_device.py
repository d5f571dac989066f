"""A session with a job on a device: whose clock it goes by, and what it asks the agent to stamp."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from autobrrr.agent.loop.device_stamps import STAMP_EACH, STAMP_SOME
from autobrrr.agent.wire import ring_layout
from autobrrr.diagnosis.signals.dispatch import inflation
from autobrrr.records import GpuSample, ProfilerWindow, Shares, Verdict
from autobrrr.sidecar.process.session_options import State
from support.sessions.session import Stage
from support.sessions.sidecar import anatomy

BUSY = {"held_ns": 50_000, "idle_ns": 0, "step_ns": 1_000_000, "beside_ns": [1_000_000, 1_000_000]}
TIMED = ProfilerWindow(status="ok", inside_share=0.5, plain_step_ns=[1_000_000], profiled_step_ns=[9_000_000])
SLACK = {
    "status": "ok",
    "hold_ns": 50_000,
    "holds": [{"place": place, **BUSY} for place in ("step", "backward") for _ in range(4)],
}


def test_a_job_that_moves_to_a_gpu_after_it_was_entered_is_one_on_a_gpu_from_then_on(stage: Stage) -> None:
    stage.enter()
    assert stage.session.findings.window.clock == "host"
    stage.run(2)
    assert "stamp" not in stage.agent.asked
    told = msgspec.to_builtins(stage.session.findings.facts)
    stage.event("facts", {**told, "cuda": True, "device": "cuda"})
    stage.run(2)
    assert stage.session.findings.window.clock == "device"
    assert stage.agent.commands[-1] == ("stamp", STAMP_SOME)
    assert stage.session.snapshot().job == stage.session.findings.facts
    assert "GPU" in stage.session.snapshot().reason
    assert stage.session.snapshot().step_ns.count == 0


def test_a_job_with_its_parameters_on_the_cpu_is_none_on_a_gpu_though_cuda_is_in_use(stage: Stage) -> None:
    stage.enter(cuda=True, device="cpu")
    stage.run(3)
    assert stage.session.findings.window.clock == "host"
    assert stage.session.snapshot().device_ns is None
    assert "stamp" not in stage.agent.asked


def test_while_steps_are_compared_each_one_is_stamped(stage: Stage) -> None:
    stage.enter(device="cuda", cuda=True)
    stage.event("anatomy", anatomy())
    stage.run(2)
    assert stage.session.begin_tuning() is None
    assert stage.agent.commands[-1] == ("stamp", STAMP_EACH)
    stage.session.end_tuning()
    stage.run(2)
    asked = [fields for do, fields in stage.agent.commands if do == "stamp"]
    assert asked[:3] == [STAMP_SOME, STAMP_EACH, STAMP_SOME]


def test_how_much_longer_a_profiled_step_is_goes_by_the_device_s_clock(stage: Stage) -> None:
    """By the host's a plain step is the time to queue it, and a profiled one anything."""
    stage.enter(device="cuda", cuda=True)
    stage.event("anatomy", anatomy())
    for _ in range(40):
        stage.writer.step(1_000_000, device_ns=5_000_000)
    assert stage.run() is State.PROFILING
    assert [do for do, _ in stage.agent.commands[-2:]] == ["stamp", "window"]
    assert stage.agent.commands[-2] == ("stamp", STAMP_EACH)
    for _ in range(4):
        stage.writer.step(9_000_000, flags=ring_layout.TRACED, device_ns=6_000_000)
    stage.run()
    stage.window(TIMED)
    found = stage.session.findings.profile
    assert found is not None
    assert inflation(found) == pytest.approx(1.2)
    assert stage.run() is State.DELAYING
    assert stage.agent.asked[-1] == "slack"
    stage.event("slack", SLACK)
    assert stage.run() is not State.DELAYING
    assert [fields for do, fields in stage.agent.commands if do == "stamp"][-1] == STAMP_SOME


def test_the_host_is_not_held_up_where_nothing_may_be_probed(tmp_path: Path) -> None:
    for number, options in enumerate(({"probing": "off"}, {"readonly": True})):
        (folder := tmp_path / str(number)).mkdir()
        stage = Stage(folder, **options).enter(device="cuda", cuda=True)
        stage.event("anatomy", anatomy())
        stage.run(40)
        stage.window(ProfilerWindow(status="ok"))
        for _ in range(4):
            stage.run(4)
        assert stage.session.state is not State.DELAYING
        assert "slack" not in stage.agent.asked


def test_what_held_up_steps_showed_is_evidence_and_is_measured_anew_beside_the_next_window(
    stage: Stage,
) -> None:
    profiling(stage)
    stage.window(ProfilerWindow(status="ok"))
    assert stage.run() is State.DELAYING
    stage.agent.answer("slack")
    stage.event("slack", SLACK)
    stage.run(4, seconds=3)
    (said,) = [each for each in stage.session.snapshot().evidence if each.signal == "host_slack"]
    assert (said.value, list(said.against)) == (0.0, ["overhead"])
    stage.event("frames", {"samples": 0, "places": []})
    stage.session.course.open_window()
    for _ in range(4):
        stage.run(4)
    assert stage.session.state is State.PROFILING
    assert stage.session.findings.slack is None


def test_a_window_on_a_device_without_stamps_says_nothing_of_how_much_longer_it_made_steps(
    stage: Stage,
) -> None:
    profiling(stage)
    stage.window(TIMED)
    found = stage.session.findings.profile
    assert found is not None
    assert inflation(found) is None


@pytest.mark.parametrize(("flags", "against"), [(ring_layout.AHEAD, ["overhead", "input", "host"]), (0, [])])
def test_what_is_the_host_s_doing_is_excluded_where_the_host_is_always_a_step_ahead(
    stage: Stage, flags: int, against: list[str]
) -> None:
    stage.enter(device="cuda", cuda=True)
    for _ in range(40):
        stage.writer.step(1_000_000, flags=flags, device_ns=5_000_000)
    stage.run(seconds=3)
    (said,) = [each for each in stage.session.snapshot().evidence if each.signal == "host_lead"]
    assert said.value == (1.0 if flags else 0.0)
    assert list(said.against) == against


@pytest.mark.parametrize(
    ("unproven", "world_size", "others", "why"),
    [
        (True, 1, 0, None),
        (False, 1, 0, "--allow unproven"),
        (True, 2, 0, "the job's only one"),
        (True, 1, 1, "other programs compute"),
    ],
)
def test_a_step_is_replayed_on_a_gpu_only_if_allowed_and_only_where_the_job_is_alone_on_its_only_one(
    unproven: bool, world_size: int, others: int, why: str | None, tmp_path: Path
) -> None:
    stage = Stage(tmp_path, unproven=unproven)
    seen = GpuSample(t_ns=0, memory_used_bytes=2, memory_total_bytes=9, other_processes=others)
    stage.session.findings.gpu = SimpleNamespace(samples=lambda: [seen], step=lambda *_: None)
    stage.enter(device="cuda", cuda=True, rank=0, world_size=world_size)
    stage.event("anatomy", {**anatomy(), "gpu_uuids": ["one"]})
    for _ in range(40):
        stage.writer.step(1_000_000, device_ns=5_000_000)
    stage.run()
    for name in ("collectives", "window", "slack"):
        if name == "window":
            stage.window(ProfilerWindow(status="ok"))
        else:
            stage.event(name, {"status": "abstained", "why": "-"})
        stage.run(2)
    asked = [fields for do, fields in stage.agent.commands if do == "trace"]
    found = stage.session.findings.probe
    if why is None:
        assert asked == [{"device": "one", "step_ns": 5_000_000, "free_bytes": 7, "steps": 3}]
        assert stage.session.state is State.PROBING
    else:
        assert asked == []
        assert found is not None
        assert why in (found.why or "")


def profiling(stage: Stage) -> None:
    stage.enter(device="cuda", cuda=True)
    stage.event("anatomy", anatomy())
    assert stage.run(40) is State.PROFILING


def windowed(stage: Stage, window: ProfilerWindow) -> None:
    """A device's window and slack are there, and the session watches."""
    profiling(stage)
    through(stage, window)


def through(stage: Stage, window: ProfilerWindow) -> None:
    stage.window(window)
    assert stage.run() is State.DELAYING
    stage.event("slack", SLACK)
    stage.run(4)
    if stage.session.state is State.SAMPLING:
        stage.event("frames", {"samples": 0, "places": []})
        stage.run(4)
    assert stage.session.state is State.JUDGED


def asked_for_windows(stage: Stage) -> int:
    return stage.agent.asked.count("window")


NAMED = Verdict(
    regime="memory",
    confidence="low",
    reason="by a trace",
    limit="kernels",
    shares=Shares(memory=0.9),
    evidence=[],
)
PRODUCTS = msgspec.structs.replace(NAMED, regime="unknown", shares=Shares(compute=0.9))
HOST = msgspec.structs.replace(
    NAMED, regime="overhead", limit="host", shares=Shares(overhead=0.8, compute=0.2)
)


def test_what_a_window_showed_of_the_job_before_it_was_changed_does_not_speak_any_more(stage: Stage) -> None:
    windowed(stage, ProfilerWindow(status="ok", verdict=NAMED))
    findings = stage.session.findings
    assert findings.profile is not None
    assert findings.slack is not None
    stage.session.active.apply("optimizer.fused", {}, lambda switched: None)
    stage.agent.answer("apply", token=1, seq=1)
    assert findings.profile is None
    assert findings.slack is None
    for _ in range(6):
        stage.run(8, seconds=1)
    assert asked_for_windows(stage) == 2, "the changed job is profiled by itself"


def test_a_job_that_was_changed_after_its_window_is_profiled_again_once_the_rest_is_measured(
    stage: Stage,
) -> None:
    profiling(stage)
    stage.window(ProfilerWindow(status="ok", verdict=NAMED))
    assert stage.run() is State.DELAYING
    stage.session.active.apply("optimizer.fused", {}, lambda switched: None)
    stage.agent.answer("apply", token=1, seq=1)
    stage.event("slack", SLACK)
    for _ in range(6):
        stage.run(8, seconds=1)
    assert asked_for_windows(stage) == 2


@pytest.mark.parametrize(
    ("window", "again"),
    [
        (ProfilerWindow(status="abstained", why="an evaluation fell into it"), 2),
        (ProfilerWindow(status="ok", verdict=NAMED), 0),
    ],
)
def test_an_unlucky_window_is_taken_again_twice(stage: Stage, window: ProfilerWindow, again: int) -> None:
    windowed(stage, window)
    for wait_s in (6, 16, 60, 300):
        stage.run(4, seconds=wait_s - 2)
        if stage.run(4, seconds=2) is State.PROFILING:
            through(stage, window)
    assert asked_for_windows(stage) == 1 + again


@pytest.mark.parametrize("verdict", [NAMED, HOST])
def test_shapes_are_not_asked_for_where_nothing_needs_them(stage: Stage, verdict: Verdict) -> None:
    profiling(stage)
    stage.window(ProfilerWindow(status="ok", verdict=verdict))
    assert stage.run() is State.DELAYING
    assert [fields for do, fields in stage.agent.commands if do == "window"] == [
        {"steps": 4, "shapes": False, "asked": False}
    ]


@pytest.mark.parametrize(
    ("second", "kept"),
    [
        (ProfilerWindow(status="ok", verdict=PRODUCTS, shapes=True, stall_ns=30), True),
        (ProfilerWindow(status="abstained", why="an evaluation fell into it"), False),
    ],
)
def test_shapes_of_products_come_from_a_second_short_window(
    stage: Stage, second: ProfilerWindow, kept: bool
) -> None:
    profiling(stage)
    stage.window(ProfilerWindow(status="ok", verdict=PRODUCTS, stall_ns=50))
    assert stage.run() is State.PROFILING
    assert stage.agent.commands[-1] == ("window", {"steps": 2, "shapes": True, "asked": False})
    stage.window(second)
    assert stage.run() is State.DELAYING
    found = stage.session.findings.profile
    assert (found.status, found.shapes) == ("ok", kept)
    assert found.stall_ns == (80 if kept else 50), "what both took"
