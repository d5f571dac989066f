"""The model of a space: effects add up, luck shrinks, what others try is not tried twice."""

from __future__ import annotations

import numpy as np
import pytest

from autobrrr.relaunch.search.point_sampler import PointSampler, expected
from autobrrr.relaunch.search.point_search import Search
from autobrrr.relaunch.search.search_space import Point, Result, Space
from support.relaunch import parameter

SPACE = Space(parameters=tuple(parameter(f"--flag-{name}", 2) for name in "abcde"))
GAINS = (0.3, 0.15, -0.2, 0.1, -0.05)


def result(point: Point, value: float, half: float = 0.02) -> Result:
    return Result(point=point, value=value, kind="measured", low=value - half)


def alone(i: int) -> Point:
    return tuple(int(i == each) for each in range(len(GAINS)))


def proposed(results: list[Result], free: list[Point]) -> Point:
    sampler = PointSampler(SPACE)
    sampler.results, sampler.free = results, free
    return tuple(sampler.sample_relative(None, None, None).values())


def test_what_helps_alone_is_proposed_together() -> None:
    singles = [result(alone(i), gain) for i, gain in enumerate(GAINS)]
    assert proposed(singles, [point for point in SPACE.points() if sum(point) > 1]) == (1, 1, 0, 1, 0)


def test_without_results_the_point_of_which_least_is_known_comes_first() -> None:
    assert proposed([], SPACE.points()) == (1, 1, 1, 1, 1)


def test_a_lucky_draw_of_a_wide_interval_is_not_expected_to_last() -> None:
    lucky, sure = (1, 1, 0, 0, 0), (1, 0, 0, 0, 0)
    found = expected(SPACE, [result(sure, 0.3, half=0.02), result(lucky, 0.38, half=0.6)])
    assert found[sure] == pytest.approx(0.3, abs=0.01)
    assert found[lucky] < found[sure] + 0.03
    assert found[SPACE.base] == pytest.approx(0.0, abs=1e-6)


def test_trials_that_failed_say_nothing() -> None:
    crashed = Result(point=alone(0), value=None, kind="crash")
    assert expected(SPACE, [crashed]) == {SPACE.base: pytest.approx(0.0, abs=1e-6)}


def test_a_search_finds_the_best_of_32_points_in_8_trials() -> None:
    draw = np.random.default_rng(1)
    reached = []
    for seed in range(10):
        search = Search(SPACE, seed=seed)
        while (point := search.ask()) is not None:
            value = sum(gain for gain, on in zip(GAINS, point, strict=True) if on)
            search.tell(result(point, value + float(draw.normal(0, 0.02)), half=0.04))
        assert len(search.results) <= 8
        reached.append(sum(gain for gain, on in zip(GAINS, search.best.point, strict=True) if on))
    assert np.median(reached) == pytest.approx(0.55)
