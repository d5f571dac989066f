"""Steps of a trial: when they have settled, what they hold, what several starts prove together."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.agent import ring
from autobrrr.relaunch.duel import joint
from autobrrr.relaunch.steps import Steps, is_settled
from autobrrr.sidecar.ring_reader import RECORD, Records

MS = 1_000_000


def records(count: int, ms: float = 5.0, **fields: int) -> Records:
    found = np.zeros(count, dtype=RECORD)
    found["end_ns"] = (np.arange(count) + 1) * int(ms * MS)
    found["start_ns"] = found["end_ns"] - int(ms * MS)
    found["seq"] = np.arange(count)
    for name, value in fields.items():
        found[name] = value
    return found


def test_steps_between_two_moments_are_whole_steps() -> None:
    steps = Steps()
    steps.add(records(10))
    assert len(steps.between(5 * MS, 30 * MS)) == 5
    assert len(steps.between(6 * MS, 30 * MS)) == 4
    assert (steps.count, steps.first_end_ns, steps.last_end_ns) == (10, 5 * MS, 50 * MS)


def test_traced_and_settling_steps_count_but_are_not_measured() -> None:
    steps = Steps()
    steps.add(records(10, flags=ring.SETTLING))
    assert steps.count == 10
    assert not len(steps.recent)


def test_samples_of_an_update_are_those_of_all_its_backward_calls() -> None:
    steps = Steps()
    assert steps.samples is None
    steps.add(records(6, flags=ring.PHASES, samples=16, backwards=4, fires=1))
    assert steps.samples == 64
    gan = Steps()
    gan.add(records(6, flags=ring.PHASES, samples=16, backwards=2, fires=2))
    assert gan.samples == 16


def test_a_loss_that_is_no_number_three_times_is_lost() -> None:
    steps = Steps()
    steps.add(records(2, flags=ring.PHASES, loss_finite=0))
    assert not steps.loss_lost
    steps.add(records(1, flags=ring.PHASES, loss_finite=0))
    assert steps.loss_lost
    steps.add(records(1, flags=ring.PHASES, loss_finite=1))
    assert not steps.loss_lost


def test_step_times_settle_when_they_no_longer_fall() -> None:
    falling = np.linspace(50.0, 5.0, 60) * MS
    assert not is_settled(falling)
    assert is_settled(np.concatenate([falling, np.full(120, 5.0 * MS)]))
    assert not is_settled(np.full(7, 5.0 * MS))
    assert is_settled(np.full(8, 2000.0 * MS))


@given(st.floats(0.1, 3000.0), st.integers(0, 2**32 - 1))
def test_steady_steps_of_any_length_settle(ms: float, seed: int) -> None:
    noise = np.random.default_rng(seed).normal(1.0, 0.01, 400)
    assert is_settled(ms * MS * noise)


def test_several_starts_are_never_surer_than_their_difference_allows() -> None:
    draw = np.random.default_rng(1)
    alike = joint([list(0.1 + draw.normal(0, 0.01, 20)) for _ in range(3)])
    apart = joint([list(mean + draw.normal(0, 0.01, 20)) for mean in (0.0, 0.1, 0.2)])
    assert alike is not None
    assert apart is not None
    assert alike.low > 0.05
    assert apart.low < 0
    assert joint([[0.1], [0.1]]) is None


def test_intervals_of_three_starts_hold_the_truth() -> None:
    draw = np.random.default_rng(2)
    missed = 0
    for _ in range(200):
        starts = [list(draw.normal(0.05, 0.01) + draw.normal(0, 0.02, 12)) for _ in range(3)]
        found = joint(starts)
        assert found is not None
        missed += not found.low <= 0.05 <= found.high
    assert missed <= 16  # 5 % and chance
