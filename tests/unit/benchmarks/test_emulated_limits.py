"""Jobs with a planted limit: how they are scored, and that those kept aside are none of the others."""

from __future__ import annotations

import pytest

from benchmarks.gpu.emulated_limits import ASIDE, JOBS, KEPT_ASIDE, LIMITS, MORE, score


def test_no_job_stands_twice_and_a_third_of_the_new_ones_is_kept_aside() -> None:
    every = (*JOBS, *MORE, *KEPT_ASIDE)
    assert len({each.words for each in every}) == len(every) == len(LIMITS) + len(ASIDE)
    assert len(every) >= 48
    assert len(KEPT_ASIDE) >= (len(MORE) + len(KEPT_ASIDE)) // 3


@pytest.mark.parametrize(
    ("limit", "regime", "is_"),
    [
        ("host", "overhead", "right"),
        ("host", "unknown", "right"),
        ("mixed", "unknown", "silent"),
        ("unknown", "overhead", "silent"),
        ("kernels", "unknown", "wrong"),
        ("host", "memory", "wrong"),
    ],
)
def test_a_named_limit_or_regime_that_was_not_planted_is_wrong(limit: str, regime: str, is_: str) -> None:
    assert score(JOBS[0], limit, regime) == is_
