"""A rank that waits for others is named so, and its wait is no overhead."""

from __future__ import annotations

import dataclasses

import pytest

from autobrrr.diagnosis.judge import judge
from autobrrr.diagnosis.signals import read_all
from autobrrr.records import CollectiveWaits
from support.diagnosis import waiting_rank


def test_exposed_collectives_are_named_communication_by_two_clocks() -> None:
    found = judge(waiting_rank()).verdict
    assert (found.regime, found.confidence) == ("communication", "high"), found.reason
    assert found.shares.communication == pytest.approx(0.65, abs=0.02)
    assert found.shares.overhead == pytest.approx(0.09, abs=0.03)
    assert "waits for other ranks of 2" in found.reason
    assert any(one.remedy.startswith("ddp.") for one in found.advice)


def test_a_wait_in_the_backward_is_never_called_overhead() -> None:
    readings = read_all(waiting_rank())
    assert readings["traced_steps"].says is None
    assert "overhead" in readings["traced_steps"].against


def test_one_clock_alone_names_nothing() -> None:
    found = judge(waiting_rank(blocked=0.2)).verdict
    assert found.regime == "unknown", found.reason
    assert "blocked_thread" in found.reason


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
