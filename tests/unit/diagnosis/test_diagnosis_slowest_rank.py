"""The slowest rank is the one that the others wait for; where ranks are alike, none is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.diagnosis.models.slowest_rank import rank_times, slowest_rank
from autobrrr.records import CollectiveWaits, RankLine, RankTimes, SlowestRank

MS = 1_000_000


def line(rank: int, waits: float, step: float = 40.0, error: float = 0.1) -> RankLine:
    """A rank that waits so many milliseconds of each step."""
    return RankLine(
        rank=rank,
        pid=100 + rank,
        collectives=RankTimes(
            steps=8,
            step_ns=int(step * MS),
            waits_ns=int(waits * MS),
            own_ns=int((step - waits) * MS),
            error_ns=int(error * MS),
        ),
    )


def compared(*lines: RankLine, world_size: int | None = None) -> SlowestRank:
    found = slowest_rank(lines, len(lines) if world_size is None else world_size)
    assert found is not None
    return found


def test_the_rank_that_waits_least_is_the_one_that_the_others_wait_for() -> None:
    found = compared(line(0, 12.8), line(1, 0.5), line(2, 13.2))
    assert (found.rank, found.pid, found.why) == (1, 101, None)
    assert found.waited_ns == pytest.approx(12.5 * MS)
    assert (found.step_ns, found.compared, found.world_size) == (40 * MS, 3, 3)


def test_what_all_of_them_wait_is_the_network_and_nobody_s_fault() -> None:
    assert compared(line(0, 20.0), line(1, 21.0)).rank is None
    found = compared(line(0, 20.0), line(1, 32.0))
    assert (found.rank, found.waited_ns) == (0, 12 * MS)


def test_one_rank_alone_is_not_measured() -> None:
    untimed = RankLine(rank=1, pid=101)
    assert slowest_rank([], 2) is None
    assert slowest_rank([line(0, 9.0), untimed], 2) is None


def test_a_lead_within_the_noise_names_nobody() -> None:
    assert compared(line(0, 5.0), line(1, 1.5)).why == "all of them wait alike"  # less than a tenth
    assert compared(line(0, 9.0, error=2.0), line(1, 1.0, error=2.0)).rank is None
    assert compared(line(0, 9.0, error=1.0), line(1, 1.0, error=1.0)).rank == 1


def test_two_that_are_as_slow_as_each_other_are_not_told_apart() -> None:
    assert compared(line(0, 1.0), line(1, 1.2), line(2, 25.0), line(3, 24.0)).rank is None


def test_ranks_that_were_timed_at_different_paces_are_not_compared() -> None:
    found = compared(line(0, 20.0, step=40.0), line(1, 0.5, step=60.0))
    assert found.rank is None
    assert "changed in between" in (found.why or "")


def test_a_lead_that_a_change_of_pace_can_not_explain_counts_all_the_same() -> None:
    assert compared(line(0, 30.0, step=42.0), line(1, 2.0, step=33.0)).rank == 1


def test_of_some_ranks_one_is_named_only_if_it_hardly_waits_itself() -> None:
    assert compared(line(0, 20.0), line(1, 1.0), world_size=8).rank == 1
    found = compared(line(0, 30.0), line(1, 10.0), world_size=8)
    assert found.rank is None
    assert "rank 1 waits least, but 25 % of the step itself" in (found.why or "")
    assert compared(line(0, 30.0), line(1, 10.0)).rank == 1  # all of them are known


def test_times_are_medians_of_the_timed_steps_and_say_how_sure_they_are() -> None:
    waits = CollectiveWaits(
        status="ok",
        step_ns=[100, 100, 102, 98, 100, 400],
        exposed_ns=[60, 62, 60, 58, 60, 360],
        blocked_ns=[0] * 6,
    )
    found = rank_times(waits)
    assert found is not None
    assert (found.steps, found.step_ns, found.waits_ns, found.own_ns) == (6, 100, 60, 40)
    assert 0 <= found.error_ns < 5


@pytest.mark.parametrize(
    "waits",
    [
        None,
        CollectiveWaits(status="abstained", why="busy"),
        CollectiveWaits(status="ok", step_ns=[1, 2, 3], exposed_ns=[1, 1, 1]),
        CollectiveWaits(status="ok", step_ns=[9, 9, 9, 9, 9], exposed_ns=[1]),
    ],
)
def test_without_enough_timed_steps_there_are_no_times(waits: CollectiveWaits | None) -> None:
    assert rank_times(waits) is None


@given(st.lists(st.floats(0, 40), min_size=2, max_size=9), st.integers(2, 12), st.floats(0, 5))
def test_whoever_is_named_waits_least_and_works_longest(
    waits: list[float], world_size: int, error: float
) -> None:
    lines = [line(rank, each, error=error) for rank, each in enumerate(waits)]
    found = compared(*lines, world_size=max(world_size, len(waits)))
    if found.rank is None:
        assert found.why
        assert found.waited_ns is None
        return
    assert waits[found.rank] == min(waits)
    assert found.waited_ns is not None
    assert found.waited_ns >= 0.1 * found.step_ns - 1
