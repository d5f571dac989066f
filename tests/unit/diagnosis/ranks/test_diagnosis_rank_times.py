"""One rank's waits and own work are medians of the timed steps; of too few there are none."""

from __future__ import annotations

import pytest

from autobrrr.diagnosis.ranks.rank_times import rank_times
from autobrrr.records import CollectiveWaits


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
