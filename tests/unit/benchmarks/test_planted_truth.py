"""From stopwatch and formula to what is true of a job."""

import pytest

from benchmarks.planted.case import Case, Truth
from benchmarks.planted.ceilings import Ceilings
from benchmarks.planted.truth import Timing, confirm_alone, confirm_shares, shares

ROOFS = Ceilings(threads=1, matmul_flops=100e9, bytes_per_s=10e9)  # 100 FLOP and 10 B a nanosecond


def timing(step_ns: float, *, flops: float = 0.0, traffic_bytes: float = 0.0, **sections: float) -> Timing:
    return Timing(step_ns=step_ns, sections_ns=sections, flops=flops, traffic_bytes=traffic_bytes)


def claim(truth: Truth) -> Case:
    return Case(name="x", job="mlp", truth=truth, why="because it is so")


def test_what_hollow_data_still_takes_is_overhead() -> None:
    found = shares(timing(1000), timing(800), None, ROOFS)
    assert found.shares["overhead"] == pytest.approx(0.8)
    assert confirm_shares(claim("overhead"), found).holds


def test_sections_of_the_script_are_input_and_host_and_not_overhead() -> None:
    full = timing(1000, input=600, host=150)
    found = shares(full, timing(900, input=600, host=150), None, ROOFS)
    assert found.shares["input"] == pytest.approx(0.6)
    assert found.shares["host"] == pytest.approx(0.15)
    assert found.shares["overhead"] == pytest.approx(0.15)
    assert confirm_shares(claim("input"), found).holds


@pytest.mark.parametrize(
    ("flops", "traffic_bytes", "word"),
    [(60_000, 0, "compute"), (0, 7_000, "memory"), (10_000, 1_000, "underfilled")],
)
def test_kernels_are_named_by_the_nearest_roof(flops: float, traffic_bytes: float, word: Truth) -> None:
    found = shares(timing(1000, flops=flops, traffic_bytes=traffic_bytes), timing(100), None, ROOFS)
    assert found.shares[word] == pytest.approx(0.9)
    assert confirm_shares(claim(word), found).holds


def test_a_mixture_of_kernels_is_divided_by_what_its_parts_took_alone() -> None:
    full = Timing(step_ns=1000, sections_ns={}, settled={"memory_ns": 450, "compute_ns": 450})
    found = shares(full, timing(100), None, ROOFS)
    assert found.shares["memory"] == found.shares["compute"] == pytest.approx(0.45)
    assert confirm_shares(claim("mixed"), found).holds


def test_half_of_the_step_is_not_enough_with_a_rival_close_behind() -> None:
    found = shares(timing(1000, input=520), timing(960, input=520), None, ROOFS)
    assert confirm_shares(claim("mixed"), found).holds
    assert not confirm_shares(claim("input"), found).holds


def test_a_claim_that_the_stopwatch_contradicts_does_not_hold() -> None:
    found = shares(timing(1000, input=900), timing(980, input=900), None, ROOFS)
    confirmation = confirm_shares(claim("overhead"), found)
    assert not confirmation.holds
    assert "input 90%" in confirmation.figure


def test_what_was_planted_shows_in_how_the_step_shrinks_without_it() -> None:
    assert confirm_alone(claim("overhead"), timing(1000), timing(400)).holds
    assert not confirm_alone(claim("overhead"), timing(1000), timing(600)).holds
    assert confirm_alone(claim("unknown"), timing(1000), timing(600)).holds
