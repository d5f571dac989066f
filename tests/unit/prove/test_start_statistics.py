"""The interval over fresh starts holds what it promises, also where it is looked at several times."""

from __future__ import annotations

import numpy as np
import pytest

from autobrrr.prove.start_statistics import (
    ALPHA,
    StartResult,
    gain_interval,
    is_look,
    noise_half,
    spent,
)


def starts(draw: np.random.Generator, count: int, gain: float = 0.0, luck: float = 0.01) -> list[StartResult]:
    """Each start has three processes, each with a deviation of its own."""
    found = []
    for before, twin, after in draw.normal(0, luck, (count, 3)):
        found.append(StartResult(gain=gain + after - (before + twin) / 2, luck=twin - before))
    return found


def test_looks_become_rarer_and_spend_less_than_alpha() -> None:
    assert [count for count in range(1, 30) if is_look(count)] == [3, 5, 8, 12, 18, 27]
    assert sum(spent(look) for look in range(50)) <= ALPHA


def test_false_verdicts_stay_below_alpha_over_all_looks() -> None:
    draw = np.random.default_rng(0)
    wrong, repeats = 0, 3000
    for _ in range(repeats):
        found = starts(draw, 12)
        for looks, count in enumerate((3, 5, 8, 12)):
            interval = gain_interval(found[:count], spent(looks))
            if interval.low > 0 or interval.high < 0:
                wrong += 1
                break
    assert wrong / repeats <= 1.5 * ALPHA


@pytest.mark.parametrize(("gain", "count"), [(0.10, 3), (0.03, 8)])
def test_a_gain_that_is_there_is_found(gain: float, count: int) -> None:
    draw = np.random.default_rng(1)
    found = [gain_interval(starts(draw, count, gain, luck=0.005), spent(2)) for _ in range(400)]
    assert np.mean([each.low > 0 for each in found]) > 0.9
    assert abs(np.mean([each.mean for each in found]) - gain) < 0.001


def test_noise_shrinks_with_more_starts() -> None:
    draw = np.random.default_rng(2)
    found = starts(draw, 40)
    assert noise_half(found, ALPHA) < noise_half(found[:4], ALPHA)
