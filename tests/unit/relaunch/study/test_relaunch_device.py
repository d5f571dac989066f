"""Pairs of trials on one device: drained before a turn ends, and counted by device ends."""

from __future__ import annotations

import math

import pytest

from autobrrr.relaunch.study import timed_turns as duels
from autobrrr.relaunch.study.timed_turns import Duel
from autobrrr.tuner.job_under_test import StepClock
from support.simulated.virtual_gpu import MS, GpuStep, truth_ns
from support.simulated.virtual_trials import Machine, VirtualTrial

LONG = pytest.mark.integration  # a long simulation


def fight(
    monkeypatch: pytest.MonkeyPatch, base: GpuStep, candidate: GpuStep, clock: StepClock, *, drains: bool
) -> Duel:
    machine = Machine()
    monkeypatch.setattr(duels, "time", machine)
    trials = [
        VirtualTrial(machine, step, clock=clock, drains=drains, seed=seed)
        for seed, step in enumerate((base, candidate))
    ]
    for trial in trials:  # they settle, one by one
        trial.resume()
        machine.sleep(1.0)
        trial.pause()
    monkeypatch.setattr(duels, "DUEL_NS", int(8_000 * MS))
    monkeypatch.setattr(duels, "SURE", 0.01)
    return duels.duel(trials[0], trials[1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("base", "candidate"),
    [
        pytest.param(GpuStep(launches=100), GpuStep(launches=100, kernels_ns=2.5 * MS), id="deep queues"),
        pytest.param(GpuStep(), GpuStep(entries=5), id="one queues far deeper", marks=LONG),
        pytest.param(
            GpuStep(launches=1500, kernels_ns=3 * MS),
            GpuStep(entries=5, kernels_ns=3 * MS),
            id="host-bound",
            marks=LONG,
        ),
        pytest.param(GpuStep(launches=100), GpuStep(launches=100), id="nothing"),
        pytest.param(
            GpuStep(launches=100, item_every=10), GpuStep(launches=100, kernels_ns=4 * MS), id="reads back"
        ),
    ],
)
def test_a_pair_shows_the_gain_of_the_long_run(
    monkeypatch: pytest.MonkeyPatch, base: GpuStep, candidate: GpuStep
) -> None:
    found = fight(monkeypatch, base, candidate, "device", drains=True)
    assert found.interval.factor == pytest.approx(truth_ns(base) / truth_ns(candidate), rel=0.02)
    assert found.base_ns == pytest.approx(truth_ns(base), rel=0.02)


@LONG
def test_by_host_ends_and_undrained_a_deep_queue_would_be_taken_for_speed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = fight(monkeypatch, GpuStep(), GpuStep(entries=5), "host", drains=False)
    assert abs(math.log(found.interval.factor)) > 0.1
