"""When a duel of two trials ends: sure enough, beaten, out of time; and that vague figures get more time."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from autobrrr.relaunch.study import timed_turns as duels
from autobrrr.relaunch.study.timed_turns import DUEL_NS, Duel, is_telling
from autobrrr.relaunch.study.work_per_step import Pairs, Yardstick, by_steps
from autobrrr.tuner.confidence_sequence import Interval
from autobrrr.tuner.token_adjustment import TokenBlock

MS = 1_000_000
BLOCK_NS = 150 * MS


class Simulated:
    """A trial whose blocks take simulated time."""

    def __init__(self, step_ms: float, noise: float, ends_after: int = 10**9) -> None:
        self.step_ms, self.noise, self.left = step_ms, noise, ends_after
        self.steps = SimpleNamespace(typical_ns=step_ms * MS)


def fight(
    monkeypatch: pytest.MonkeyPatch,
    base: Simulated,
    candidate: Simulated,
    beaten: float | None = None,
    yardstick: Yardstick = by_steps,
) -> tuple[Duel, int]:
    """The duel, and the simulated nanoseconds that it took."""
    now, draw = [0], np.random.default_rng(1)

    def block(trial: Simulated) -> TokenBlock | None:
        now[0] += BLOCK_NS
        trial.left -= 1
        if trial.left < 0:
            return None
        slower = math.exp(draw.normal(0, trial.noise))
        nothing = np.empty(0)
        return TokenBlock(steps=np.full(20, trial.step_ms * slower * MS), counted=nothing, tokens=nothing)

    monkeypatch.setattr(duels, "block", block)
    monkeypatch.setattr(duels.time, "perf_counter_ns", lambda: now[0])
    found = duels.duel(base, candidate, beaten=beaten, yardstick=yardstick)  # type: ignore[arg-type]
    return found, now[0]


def test_a_clear_gain_ends_after_a_few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    found, took = fight(monkeypatch, Simulated(10, 0.005), Simulated(5, 0.005))
    assert len(found.values) == duels.FEWEST_PAIRS
    assert took < DUEL_NS
    assert found.interval is not None
    assert found.interval.low < math.log(2) < found.interval.high
    assert found.base_ns == pytest.approx(10 * MS, rel=0.02)


def test_what_steps_hold_is_learned_while_they_run_and_counts_for_all_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = iter([1.0, 3.0, *[2.0] * 1000])

    def counted(pairs: Pairs) -> list[float]:
        return by_steps(pairs, next(told))

    found, _ = fight(monkeypatch, Simulated(10, 0.005), Simulated(10, 0.005), yardstick=counted)
    assert found.values == pytest.approx([math.log(2)] * len(found.values), abs=0.03)


def test_who_is_surely_worse_than_the_best_so_far_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duels, "SURE", 0.0001)
    found, took = fight(monkeypatch, Simulated(10, 0.02), Simulated(9, 0.02), 0.5)
    assert found.pruned
    assert took < DUEL_NS
    assert not fight(monkeypatch, Simulated(10, 0.02), Simulated(9, 0.02), 0.1)[0].pruned


def test_on_a_noisy_machine_a_duel_gets_more_time_but_not_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet, quiet_ns = fight(monkeypatch, Simulated(10, 0.1), Simulated(10, 0.1))
    noisy, noisy_ns = fight(monkeypatch, Simulated(10, 1.0), Simulated(10, 1.0))
    assert DUEL_NS < quiet_ns < DUEL_NS + 3 * BLOCK_NS
    assert 2 * DUEL_NS < noisy_ns <= 3 * DUEL_NS + 3 * BLOCK_NS
    assert quiet.interval is not None
    assert noisy.interval is not None
    assert is_telling(quiet.interval)
    assert not is_telling(noisy.interval)


def test_a_trial_that_ends_leaves_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = fight(monkeypatch, Simulated(10, 0.01), Simulated(9, 0.01, ends_after=2))
    assert len(found.values) == 2
    assert found.interval is None


@pytest.mark.parametrize(
    ("mean", "half", "telling"), [(0.0, 0.1, True), (0.0, 0.2, False), (1.0, 0.4, True), (1.0, 0.6, False)]
)
def test_an_interval_tells_something_where_it_is_short_or_on_one_side(
    mean: float, half: float, telling: bool
) -> None:
    assert is_telling(Interval(mean=mean, low=mean - half, high=mean + half, count=9)) is telling


@pytest.mark.parametrize(("rare_ms", "lost"), [(400, True), (0, False)])
def test_steps_that_take_long_now_and_then_are_taken_off_the_gain(
    rare_ms: float, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def block(trial: Simulated) -> TokenBlock:
        steps = np.full(20, trial.step_ms * MS)
        steps[-1] += rare_ms * MS if trial is candidate else 0
        return TokenBlock(steps=steps, counted=np.empty(0), tokens=np.empty(0))

    base, candidate = Simulated(10, 0), Simulated(5, 0)
    monkeypatch.setattr(duels, "block", block)
    found = duels.duel(base, candidate)  # type: ignore[arg-type]
    assert found.interval.mean == pytest.approx(math.log(10 / (5 + rare_ms / 20)))
    assert found.interval.low <= found.interval.mean <= found.interval.high
    assert list(found.values) == pytest.approx([found.interval.mean] * len(found.values))
    assert (found.lost < 0) is lost
