"""Comparisons on a device that works asynchronously: by its clock, in balance, or not at all."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autobrrr.records import NoClaim, Tuning
from autobrrr.tuner.ab_blocks import in_balance
from autobrrr.tuner.arm_switch import ArmSwitch
from autobrrr.tuner.comparison import undo_losses
from autobrrr.tuner.job_under_test import STEP, Steps, durations_ns, timed
from autobrrr.tuner.live_search import tune
from autobrrr.tuner.tuning_budget import TuneSettings
from support.simulated.gpu_scenarios import CHOICE, NOTHING, REMEDY, SCENARIOS, Scenario, compared
from support.simulated.virtual_gpu import MS, GpuStep, VirtualGpuJob, truth_ns

SECOND_NS = 1_000_000_000


def tuned(job: VirtualGpuJob) -> Tuning:
    return tune(job, settings=TuneSettings(budget_ns=20 * SECOND_NS, only=(REMEDY,)))


def steps(device_ms: list[float], host_ms: list[float]) -> Steps:
    made = np.zeros(len(device_ms), dtype=STEP)
    made["seq"] = np.arange(len(made))
    made["end_ns"] = np.cumsum(np.array(host_ms) * MS)
    made["start_ns"] = made["end_ns"] - np.array(host_ms) * MS
    made["device_ns"] = np.array(device_ms) * MS
    return made


@pytest.mark.integration  # a long simulation
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name)
def test_a_gain_is_what_it_is_in_the_long_run(scenario: Scenario) -> None:
    found = compared(scenario)
    assert found.interval is not None
    assert found.interval.factor == pytest.approx(scenario.truth, rel=0.02)
    assert found.interval.low <= math.log(scenario.truth) <= found.interval.high
    assert (found.decision == "better") == (scenario.truth > 1.01)


@pytest.mark.parametrize("name", ["a graph in 1 entry", "a graph in 50 entries"])
def test_the_host_s_clock_would_prove_what_is_worth_nothing(name: str) -> None:
    """What the device's clock is for: without it these cases are claimed."""
    (scenario,) = [each for each in SCENARIOS if each.name == name]
    assert scenario.truth < 1.01
    found = compared(scenario, clock="host")
    assert found.decision == "better"
    assert found.interval is not None
    assert found.interval.factor > 1.2


def test_steps_that_wait_for_the_device_show_that_a_graph_is_worth_nothing_on_the_host_s_clock_too() -> None:
    (scenario,) = [each for each in SCENARIOS if each.name == "a graph, .item() every 10"]
    assert scenario.truth < 1.01
    assert compared(scenario, clock="host").decision == "hopeless"
    assert compared(scenario).decision != "better"


@pytest.mark.integration  # a long simulation
def test_what_does_nothing_is_not_kept() -> None:
    decisions = [compared(NOTHING, seed=seed).decision for seed in range(20)]
    assert "better" not in decisions


def test_a_job_whose_device_is_not_seen_claims_nothing_and_is_left_as_it_was() -> None:
    job = VirtualGpuJob(step=GpuStep(), effects={REMEDY: GpuStep(entries=1)}, stamped=False)
    found = tuned(job)
    assert found.no_claim is NoClaim.NO_DEVICE_STAMPS
    assert (found.kept, found.speedup, found.interval) == ([], 1.0, None)
    assert (found.baseline, found.best) == (None, None)
    assert found.clock == "device"
    assert [each.outcome for each in found.trials] == ["skipped"]
    assert found.note == f"nothing can be claimed: {found.trials[0].why}"
    assert job.names_on == []


@pytest.mark.integration  # a long simulation
def test_stamps_that_stop_end_the_comparison_without_a_claim() -> None:
    found = compared(SCENARIOS[0], stamped=False)
    assert (found.decision, found.interval) == ("undecided", None)


def test_a_tuning_reports_device_time() -> None:
    with_it = GpuStep(launches=100, item_every=10, kernels_ns=2.5 * MS)
    job = VirtualGpuJob(step=GpuStep(launches=100, item_every=10), effects={REMEDY: with_it})
    found = tuned(job)
    assert (found.clock, found.no_claim, found.kept) == ("device", None, [REMEDY])
    assert found.speedup == pytest.approx(2.0, rel=0.02)
    assert found.baseline == pytest.approx(truth_ns(job.step), rel=0.02)


def test_the_guard_looks_at_the_device_and_undoes_what_has_turned_bad() -> None:
    plain, fast = GpuStep(launches=100), GpuStep(launches=100, kernels_ns=2.5 * MS)
    job = VirtualGpuJob(step=plain, effects={REMEDY: fast})
    board = ArmSwitch(job)
    board.go((CHOICE,))
    job.slower = 2.4
    assert [each.remedy for each in undo_losses(job, board, truth_ns(plain))] == [CHOICE.label]
    assert job.names_on == []


def test_steps_count_from_where_the_host_s_lead_is_no_longer_used_up() -> None:
    draining = steps([5, 5, 5, 5, 8, 8, 8], [8, 8, 8, 8, 8, 8, 8])
    assert in_balance(draining)["seq"].tolist() == [4, 5, 6]
    filling = steps([5, 5, 5], [1, 1, 1])
    assert len(in_balance(filling)) == 3
    read_back = steps([5, 5, 5, 5], [1, 1, 1, 17])
    assert len(in_balance(read_back)) == 4


def test_no_step_counts_while_the_lead_still_shrinks_and_none_before_a_gap_of_stamps() -> None:
    assert len(in_balance(steps([5, 5, 5], [8, 8, 8]))) == 0
    assert in_balance(steps([5, 0, 5, 5], [5, 5, 5, 5]))["seq"].tolist() == [2, 3]
    assert len(in_balance(steps([5, 0], [5, 5]))) == 0


def test_a_step_lasts_as_long_as_its_device_took_where_that_is_known() -> None:
    found = steps([5, 0], [1, 2])
    assert durations_ns(found).tolist() == [5 * MS, 2 * MS]
    assert timed(found, "device")["seq"].tolist() == [0]
    assert len(timed(found, "host")) == 2
