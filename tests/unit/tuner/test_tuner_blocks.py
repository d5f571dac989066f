"""Blocks: how long, in which order, which steps count, and what a pair of them says."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.agent.wire import ring_layout
from autobrrr.tuner.ab_blocks import (
    BLOCK_NS,
    LongSteps,
    log_speed_ratio,
    pair_orders,
    plan_block,
    settled,
    shortest_pairs_ns,
)
from autobrrr.tuner.job_under_test import STEP, Steps
from autobrrr.tuner.stop_rules import RATHER, SURELY


def records(took_ns: list[int], flags: list[int] | None = None, first: int = 0) -> Steps:
    made = np.zeros(len(took_ns), dtype=STEP)
    made["seq"] = np.arange(first, first + len(took_ns))
    made["end_ns"] = np.cumsum(took_ns)
    made["start_ns"] = made["end_ns"] - np.array(took_ns)
    made["flags"] = flags or [0] * len(took_ns)
    return made


def took(steps: Steps) -> list[int]:
    return [int(each) for each in steps["end_ns"] - steps["start_ns"]]


@given(st.floats(1e3, 1e11))
def test_a_block_is_long_enough_to_mean_something_and_short_enough_to_bear(step_ns: float) -> None:
    plan = plan_block(step_ns)
    assert plan.steps >= 2
    assert plan.steps * step_ns >= BLOCK_NS or plan.steps * step_ns > 3e9
    assert plan.steps >= 8 or plan.steps * step_ns >= 2e9
    assert plan.steps <= 8 or plan.steps * step_ns <= BLOCK_NS + step_ns


def test_slow_steps_lose_only_one_step_to_settling() -> None:
    assert plan_block(2e9).settle == 1
    assert plan_block(1e6).settle == 2


def test_a_block_is_as_long_as_the_switch_before_it_however_short_its_slot() -> None:
    assert plan_block(20e6, slot_ns=4e9).steps == 5
    assert plan_block(20e6, slot_ns=4e9, switch_ns=200e6).steps == 9
    assert plan_block(20e6, switch_ns=400e6).steps == 20
    assert shortest_pairs_ns(20e6, 6, 200e6) == 12 * 400_000_000
    assert shortest_pairs_ns(20e6, 6) == 12 * 60_000_000


def test_both_orders_come_and_none_is_favoured() -> None:
    orders = list(itertools.islice(pair_orders(random.Random(5)), 2000))
    assert set(orders) == {("A", "B"), ("B", "A")}
    assert 900 < orders.count(("A", "B")) < 1100


@pytest.mark.parametrize(
    "flag",
    [
        ring_layout.TRACED,
        ring_layout.SKIPPED,
        ring_layout.EVALUATION,
        ring_layout.SWITCHED,
        ring_layout.SETTLING,
    ],
)
def test_steps_that_stand_for_nothing_do_not_count_and_sampled_ones_do(flag: int) -> None:
    assert took(settled(records([10, 99, 11], [0, flag, ring_layout.PHASES]), 0, 0)) == [10, 11]


def test_the_first_steps_under_new_remedies_are_dropped() -> None:
    assert took(settled(records([50, 40, 10, 11], first=100), 2, 100)) == [10, 11]


def test_a_checkpoint_in_one_block_hardly_moves_the_ratio() -> None:
    draw = np.random.default_rng(2)
    without, with_it = draw.normal(100, 5, 60), draw.normal(100, 5, 60)
    with_it[30] = 5000.0
    capped = log_speed_ratio(without, with_it, rare=False)
    plain = log_speed_ratio(without, with_it, rare=True)
    assert capped is not None
    assert abs(capped) < 0.03
    assert plain < -0.3


def test_a_block_without_steps_says_nothing() -> None:
    assert log_speed_ratio(np.array([1.0]), np.full(9, 1.0), rare=False) is None


@pytest.mark.parametrize(("rare_without", "doubted"), [(False, True), (True, False)])
def test_long_steps_on_one_side_alone_are_doubted_and_then_counted(rare_without: bool, doubted: bool) -> None:
    draw = np.random.default_rng(3)

    def block(rare: bool) -> np.ndarray:
        steps = draw.normal(10e6, 0.1e6, 20)
        steps[7] *= 9 if rare else 1
        return steps

    seen = LongSteps()
    for pairs in range(1, 21):
        seen.add(block(rare_without), block(True))
        if pairs == 6:
            assert (seen.chance < RATHER) is doubted
            assert seen.chance > SURELY  # so few may come by chance
    assert (seen.chance < SURELY) is doubted
