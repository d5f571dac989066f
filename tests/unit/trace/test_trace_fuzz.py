"""Mutated traces, longer than three blocks: nothing that a plain JSON parse sees is lost, or it is said."""

from __future__ import annotations

import pytest

from benchmarks.fuzzing.trace_documents import case
from benchmarks.fuzzing.trace_target import problems

pytestmark = pytest.mark.integration


def wrong(first: int, count: int) -> list[str]:
    return [f"{seed}: {each}" for seed in range(first, first + count) for each in problems(case(seed))]


@pytest.mark.parametrize("share", range(8))
def test_mutated_traces_lose_nothing_in_silence(share: int) -> None:
    assert wrong(150 * share, 150) == []


@pytest.mark.nightly
@pytest.mark.parametrize("share", range(10))
def test_ten_thousand_mutated_traces_lose_nothing_in_silence(share: int) -> None:
    assert wrong(10_000 + 1_000 * share, 1_000) == []
