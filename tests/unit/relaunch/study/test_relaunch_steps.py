"""Steps of a trial: when they have settled, what they hold, what several starts prove together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.agent.wire import ring_layout
from autobrrr.relaunch.trial.trial_steps import TrialSteps, is_settled
from autobrrr.sidecar.session.ring_reader import Records
from autobrrr.tuner.job_under_test import STEP

MS = 1_000_000


def records(count: int, ms: float = 5.0, **fields: int) -> Records:
    found = np.zeros(count, dtype=STEP)
    found["end_ns"] = (np.arange(count) + 1) * int(ms * MS)
    found["start_ns"] = found["end_ns"] - int(ms * MS)
    found["seq"] = np.arange(count)
    for name, value in fields.items():
        found[name] = value
    return found


def test_steps_since_a_moment_are_whole_steps() -> None:
    steps = TrialSteps()
    steps.add(records(10))
    assert len(steps.block(5 * MS).steps) == 9
    assert len(steps.block(6 * MS).steps) == 8
    assert (steps.count, steps.first_end_ns, steps.last_end_ns) == (10, 5 * MS, 50 * MS)


def test_traced_and_settling_steps_count_but_are_not_measured() -> None:
    steps = TrialSteps()
    steps.add(records(10, flags=ring_layout.SETTLING))
    assert steps.count == 10
    assert not len(steps.recent)


def test_samples_of_an_update_are_those_of_all_its_backward_calls() -> None:
    steps = TrialSteps()
    assert steps.samples is None
    steps.add(records(6, flags=ring_layout.PHASES, samples=16, backwards=4, fires=1))
    assert steps.samples == 64
    gan = TrialSteps()
    gan.add(records(6, flags=ring_layout.PHASES, samples=16, backwards=2, fires=2))
    assert gan.samples == 16


def test_tokens_of_a_step_are_the_mean_of_those_that_show_them() -> None:
    steps = TrialSteps()
    steps.add(records(4, flags=ring_layout.PHASES, samples=8, tokens=-1))
    assert steps.tokens is None
    steps.add(records(3, flags=ring_layout.PHASES, samples=8, backwards=2, fires=1, tokens=1600))
    steps.add(records(1, flags=ring_layout.PHASES, samples=8, backwards=2, fires=1, tokens=800))
    steps.add(records(5, tokens=7))  # plain steps: what stands there is of an earlier lap of the ring
    assert steps.tokens == 1400


@pytest.mark.parametrize(
    ("lengths", "vary"),
    [
        ([64] * 20, False),
        ([64, 66] * 10, False),
        ([64] * 39 + [3], False),  # the last batch of an epoch
        ([60, 64, 70, 90], True),
        ([60, 90, 120], False),  # too few to say
    ],
)
def test_samples_differ_in_length_where_it_shows_in_several_steps(lengths: list[int], vary: bool) -> None:
    steps = TrialSteps()
    for i, length in enumerate(lengths):
        size = 8 if i % 2 else 4  # the size of a batch is no length
        steps.add(records(1, flags=ring_layout.PHASES, samples=size, tokens=size * length))
    assert steps.vary_in_length is vary
    assert steps.hardly_seen is (len(lengths) < 4)


def test_of_a_block_those_steps_are_counted_by_the_token_that_show_it() -> None:
    steps = TrialSteps()
    shown = records(6, flags=ring_layout.PHASES, tokens=100)
    shown["flags"][::2] = 0
    shown["tokens"][5] = -1
    steps.add(shown)
    found = steps.block(5 * MS, settle=1)
    assert len(found.steps) == 4
    assert list(found.counted) == [5 * MS]
    assert list(found.tokens) == [100]


def test_a_loss_that_is_no_number_three_times_is_lost() -> None:
    steps = TrialSteps()
    steps.add(records(2, flags=ring_layout.PHASES, loss_finite=0))
    assert not steps.loss_lost
    steps.add(records(1, flags=ring_layout.PHASES, loss_finite=0))
    assert steps.loss_lost
    steps.add(records(1, flags=ring_layout.PHASES, loss_finite=1))
    assert not steps.loss_lost


def test_step_times_settle_when_they_no_longer_fall() -> None:
    falling = np.linspace(50.0, 5.0, 60) * MS
    assert not is_settled(falling)
    assert is_settled(np.concatenate([falling, np.full(120, 5.0 * MS)]))
    assert not is_settled(np.full(7, 5.0 * MS))
    assert is_settled(np.full(8, 2000.0 * MS))


def settles_after(durations: list[float]) -> int | None:
    """Stretches of 20 steps until it is taken for settled; None: it is not."""
    counts = range(20, len(durations) + 1, 20)
    return next((n // 20 for n in counts if is_settled(np.array(durations[:n]))), None)


def test_beside_others_steps_settle_though_their_times_wander_but_never_while_they_fall() -> None:
    took = []
    for seed in range(40):
        draw = np.random.default_rng(seed)
        shares = draw.lognormal(0, 0.3, 60)
        took.append(settles_after([20 * MS * share for share in shares for _ in range(20)]))
    assert max(each or 99 for each in took) <= 24
    falling = [MS * 20 * 0.9**i for i in range(30) for _ in range(20)]
    assert settles_after(falling) is None


@given(st.floats(0.1, 3000.0), st.integers(0, 2**32 - 1))
def test_steady_steps_of_any_length_settle(ms: float, seed: int) -> None:
    noise = np.random.default_rng(seed).normal(1.0, 0.01, 400)
    assert is_settled(ms * MS * noise)


def test_on_a_device_a_turn_is_counted_by_the_steps_that_it_has_stamped() -> None:
    steps = TrialSteps()
    steps.clock = "device"
    steps.add(records(4, ms=1.0))
    assert not len(steps.recent)
    steps.add(records(6, ms=1.0, device_ns=5 * MS))
    assert steps.block(0).steps.tolist() == [5.0 * MS] * 6
    assert steps.block(0, settle=2).steps.tolist() == [5.0 * MS] * 4
    assert steps.recent.tolist() == [5.0 * MS] * 6


def test_steps_of_a_device_whose_clock_is_not_seen_are_told_from_those_of_a_cpu() -> None:
    unseen, seen, host = (TrialSteps() for _ in range(3))
    for steps in (unseen, seen):
        steps.clock = "device"
    for steps in (unseen, seen, host):
        steps.add(records(700))
    seen.add(records(1, device_ns=MS))
    assert [each.lack_stamps for each in (unseen, seen, host)] == [True, False, False]
