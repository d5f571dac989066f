"""Trials of a study take turns: coming up, drained before a turn ends, in the time that is kept back."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from autobrrr.relaunch.search.point_search import Search
from autobrrr.relaunch.search.search_space import Space
from autobrrr.relaunch.study import study
from autobrrr.relaunch.study import timed_turns as duels
from autobrrr.relaunch.study.study import CLOSING_STARTS, KEPT_BACK, Study
from autobrrr.relaunch.study.timed_turns import Duel, settle_in_turn
from autobrrr.tuner.job_under_test import StepClock
from support.relaunch import parameter
from support.simulated.virtual_gpu import MS, GpuStep, truth_ns
from support.simulated.virtual_trials import Machine, VirtualTrial

SPACE = Space(parameters=(parameter("--workers", 2),))


def has_time(
    monkeypatch: pytest.MonkeyPatch, trials: int, whole_s: float, *took_s: float, more_s: float = 0.0
) -> bool:
    """Whether a study that has made trials, one after the other, has time for so many more."""
    monkeypatch.setattr(study, "time", SimpleNamespace(perf_counter_ns=lambda: 0))
    found = Study(stable=None, space=SPACE, search=Search(SPACE), budget_ns=int(whole_s * 1e9))  # type: ignore[arg-type]
    found._began_ns = -int((sum(took_s) + more_s) * 1e9)
    found._took_ns = [int(each * 1e9) for each in took_s]
    return found.has_time_for(trials)


def test_what_ablation_and_fresh_starts_will_take_is_kept_back(monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_time(monkeypatch, 1 + KEPT_BACK, 105, 15)  # 15 + 15 + 5 x 15
    assert not has_time(monkeypatch, 1 + KEPT_BACK, 105, 15, more_s=1)
    assert has_time(monkeypatch, 1 + CLOSING_STARTS, 60, 10, 10)
    assert not has_time(monkeypatch, 1 + CLOSING_STARTS, 60, 10, 10, 10)


def test_a_trial_that_took_long_once_does_not_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_time(monkeypatch, 1 + KEPT_BACK, 150, 5, 100, 5)


class Trial:
    """Comes up after so many looks; says what was done with it."""

    def __init__(self, name: str, looks: int, said: list[str], *, ends: bool = False) -> None:
        self.name, self.looks, self.said, self.ends = name, looks, said, ends
        self.steps = SimpleNamespace(count=0)
        self.ending: str | None = None
        self.runs = True
        self.warm_up: Callable[[object], bool]

    def look(self) -> None:
        assert self.runs
        self.looks -= 1
        if self.looks <= 0:
            self.steps.count, self.ending = 1, "crash" if self.ends else None

    def pause(self) -> None:
        self.runs = False
        self.said.append(f"{self.name} stands")

    def resume(self) -> None:
        self.runs = True
        self.said.append(f"{self.name} runs")


def come_up(*trials: Trial, settles: bool = True) -> bool:
    for trial in trials:

        def settle(on_look: object, trial: Trial = trial) -> bool:
            assert [each.name for each in trials if each.runs] == [trial.name]
            return settles

        trial.warm_up = settle
    return settle_in_turn(trials, sleep=lambda seconds: None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("first", "second"), [(3, 1), (1, 3), (1, 1)])
def test_whoever_is_up_first_waits_and_none_settles_beside_another(first: int, second: int) -> None:
    said: list[str] = []
    assert come_up(Trial("a", first, said), Trial("b", second, said))
    assert sorted(said[:2]) == ["a stands", "b stands"]
    assert said[2:] == ["a runs", "a stands", "b runs", "b stands"]


def test_one_that_ends_ends_it() -> None:
    said: list[str] = []
    assert not come_up(Trial("a", 1, said), Trial("b", 2, said, ends=True))
    assert said == ["a stands"]
    assert not come_up(Trial("a", 1, said), Trial("b", 1, said), settles=False)


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
