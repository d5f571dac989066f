"""The interval is valid under repeated looks, and moves as a mean's interval must."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autobrrr.tuner.confidence_sequence import EFFECT_SCALE, mean_interval, student_quantile, winsorised

values = st.lists(st.floats(-1, 1, allow_nan=False), min_size=3, max_size=60)


@given(values, st.floats(-5, 5), st.floats(0.1, 10))
def test_it_moves_with_the_values_and_grows_with_their_unit(
    found: list[float], shift: float, unit: float
) -> None:
    plain = mean_interval(found, 0.05)
    moved = mean_interval([unit * value + shift for value in found], 0.05)
    assert (plain is None) == (moved is None)
    if plain is not None and moved is not None:
        assert moved.mean == pytest.approx(unit * plain.mean + shift, abs=1e-6)
        assert moved.low == pytest.approx(unit * plain.low + shift, abs=1e-6)
        assert moved.high == pytest.approx(unit * plain.high + shift, abs=1e-6)


@given(values, st.sampled_from([0.01, 0.05, 0.2]))
def test_at_its_bounds_the_bayes_factor_is_one_over_alpha(found: list[float], alpha: float) -> None:
    n, deviation = len(found), float(np.std(found, ddof=1))
    interval = mean_interval(found, alpha, winsorise=False)
    assume(interval is not None and deviation > 1e-6)
    k = 1 + n * EFFECT_SCALE**2
    for bound in (interval.low, interval.high):
        odds = n * ((interval.mean - bound) / deviation) ** 2 / (n - 1)
        log_factor = -math.log(k) / 2 + n / 2 * (math.log1p(odds) - math.log1p(odds / k))
        assert log_factor == pytest.approx(-math.log(alpha), rel=1e-6)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_values_have_no_interval(count: int) -> None:
    assert mean_interval([0.1] * count, 0.05) is None


@given(st.integers(0, 10_000))
def test_it_narrows_as_values_come(seed: int) -> None:
    drawn = list(np.random.default_rng(seed).normal(0.03, 0.02, 400))
    early, late = mean_interval(drawn[:20], 0.05), mean_interval(drawn, 0.05)
    assert late.high - late.low < 0.6 * (early.high - early.low)


@pytest.mark.nightly
@pytest.mark.integration  # a long simulation
def test_looked_at_after_every_value_it_is_wrong_no_more_often_than_alpha() -> None:
    draw = np.random.default_rng(11)
    ever_wrong = 0
    for _ in range(300):
        drawn = draw.normal(0.0, 0.03, 80)
        found = (mean_interval(list(drawn[:count]), 0.05) for count in range(3, 81))
        ever_wrong += any(each is not None and not each.low <= 0 <= each.high for each in found)
    # 5 % allowed; more than 9 % of 300 would come about once in a thousand honest runs.
    assert ever_wrong <= 27


def test_an_effect_as_large_as_the_scatter_is_seen_within_twenty_values() -> None:
    draw = np.random.default_rng(12)
    seen = 0
    for _ in range(100):
        found = mean_interval(list(draw.normal(0.03, 0.03, 20)), 0.05)
        seen += found is not None and found.low > 0
    assert seen >= 50


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=50))
def test_outliers_are_moved_never_dropped_and_the_order_stays(found: list[float]) -> None:
    before = np.array(found)
    after = winsorised(before)
    assert len(after) == len(before)
    assert after.min() >= before.min()
    assert after.max() <= before.max()
    assert np.all(np.diff(after[np.argsort(before)]) >= 0)


def test_one_wild_pair_does_not_hide_an_effect() -> None:
    draw = np.random.default_rng(13)
    drawn = [*draw.normal(0.05, 0.02, 30), -3.0]
    found = mean_interval(drawn, 0.05)
    assert found.low > 0


@pytest.mark.parametrize(
    ("p", "freedom", "t"),
    [(0.975, 1, 12.7062), (0.975, 2, 4.3027), (0.995, 5, 4.0321), (0.95, 10, 1.8125), (0.9995, 31, 3.6335)],
)
def test_quantiles_of_students_distribution_are_those_of_tables(p: float, freedom: int, t: float) -> None:
    assert student_quantile(p, freedom) == pytest.approx(t, abs=1e-4)
