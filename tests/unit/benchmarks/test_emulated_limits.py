"""Jobs with a planted limit, and how they are scored."""

import pytest

from benchmarks.gpu.emulated_limits import JOBS, score


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
