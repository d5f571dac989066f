"""A rank that waits for others is named so, and its wait is no overhead."""

import dataclasses

import msgspec
import pytest

from autobrrr.diagnosis.models.exposed_waits import exposed_by_phase
from autobrrr.diagnosis.signals.signal_table import read_all
from autobrrr.diagnosis.verdict.judge import judge
from autobrrr.records import CollectiveWaits
from support.judged.diagnosis import hand_parallel, waiting_rank


def test_exposed_collectives_are_named_communication_by_two_clocks() -> None:
    found = judge(waiting_rank()).verdict
    assert (found.regime, found.confidence) == ("communication", "high"), found.reason
    assert found.shares.communication == pytest.approx(0.65, abs=0.02)
    assert found.shares.overhead == pytest.approx(0.09, abs=0.03)
    assert "waits for other ranks of 2" in found.reason
    assert any(one.remedy.startswith("ddp.") for one in found.advice)


def test_one_clock_alone_names_nothing() -> None:
    found = judge(waiting_rank(blocked=0.2)).verdict
    assert found.regime == "unknown", found.reason
    assert "blocked thread" in found.reason


def test_collectives_that_hide_behind_the_backward_are_excluded() -> None:
    readings = read_all(waiting_rank(exposed=0.05, blocked=0.1))
    assert readings["collective_wait"].against == ("communication",)
    assert judge(waiting_rank(exposed=0.05, blocked=0.1)).verdict.regime != "communication"


def test_without_timed_collectives_the_signals_say_why() -> None:
    job = waiting_rank()
    why = "none of the root modules is DistributedDataParallel"
    for waits, expected in (
        (None, "one process"),
        (CollectiveWaits(status="abstained", why=why), why),
        (CollectiveWaits(status="ok", step_ns=[5, 6], exposed_ns=[1, 1], blocked_ns=[1, 1]), "2 of 4 steps"),
    ):
        reading = read_all(dataclasses.replace(job, collectives=waits))["collective_wait"]
        assert reading.abstained
        assert expected in reading.note


def test_collectives_that_the_loop_calls_are_communication_and_not_its_own_code() -> None:
    found = judge(hand_parallel()).verdict
    assert (found.regime, found.confidence) == ("communication", "high"), found.reason
    assert found.shares.communication == pytest.approx(0.6, abs=0.02)
    assert (found.shares.host or 0.0) < 0.1
    assert "collectives that the loop calls take 12 ms" in found.reason
    assert found.reason.endswith("most at train.py:41 average")
    assert not any(one.remedy.startswith("ddp.") for one in found.advice)


def test_calls_that_nobody_timed_are_not_called_host() -> None:
    readings = read_all(hand_parallel(waits=False))
    assert readings["host_frames"].against == ("host",)
    assert judge(hand_parallel(waits=False)).verdict.regime not in ("host", "communication")


def test_a_loop_that_sleeps_beside_its_calls_does_not_lend_them_its_sleep() -> None:
    job = hand_parallel(called=0.3, own=0.4, blocked=0.7)
    readings = read_all(job)
    assert readings["blocked_thread"].value == pytest.approx(0.3, abs=0.03)
    assert judge(job).verdict.regime not in ("communication", "overhead")


def test_calls_during_which_the_thread_works_are_named_by_nobody() -> None:
    found = judge(hand_parallel(blocked=0.1)).verdict
    assert found.regime == "unknown", found.reason
    assert "blocked thread" in found.reason


def test_calls_and_gradients_are_told_together_and_lie_in_their_phases() -> None:
    job = waiting_rank()
    called = [step // 5 for step in job.collectives.step_ns]
    both = msgspec.structs.replace(
        job.collectives, called_ns=called, called_by_phase_ns={"other": 1.0, "forward": 1.0}
    )
    where = exposed_by_phase(dataclasses.replace(job, collectives=both))
    assert where == pytest.approx({"other": 0.1, "forward": 0.1, "backward": 0.45}, abs=0.01)


def test_steps_of_which_few_communicate_exclude_nothing() -> None:
    job = hand_parallel()
    step_ns = job.collectives.step_ns
    seldom = msgspec.structs.replace(
        job.collectives, exposed_ns=[0, 0, 0, 0, step_ns[4], step_ns[5]], called_ns=[]
    )
    reading = read_all(dataclasses.replace(job, collectives=seldom))["collective_wait"]
    assert (reading.value, reading.says, reading.against) == (0.0, None, ())


def test_the_wait_of_one_backward_of_several_excludes_nothing() -> None:
    job = waiting_rank(exposed=0.05, blocked=0.1)
    several = msgspec.structs.replace(job.collectives, reduced=[4] * len(job.collectives.step_ns))
    reading = read_all(dataclasses.replace(job, collectives=several))["collective_wait"]
    assert (reading.says, reading.against) == (None, ())
