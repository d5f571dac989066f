"""Why a side is slower: the phase that grew by most, and the line where steps stand longer."""

from __future__ import annotations

import pytest

from autobrrr.prove.slower_cause import cause
from autobrrr.records import FrameSamples
from autobrrr.records.agent_records import FrameCount

PHASES = {"data_wait": 1e6, "forward": 2e6, "backward": 3e6, "optimizer": 1e6, "other": 1e6}


def frames(**places: int) -> FrameSamples:
    counts = [
        FrameCount(where=f"train.py:{line} {name}", phase="other", in_loader=False, samples=count)
        for line, (name, count) in enumerate(places.items(), 10)
    ]
    return FrameSamples(samples=sum(places.values()), places=counts)


def test_the_phase_that_grew_and_the_line_that_takes_longer_are_named() -> None:
    before, after = frames(forward=100, log=0), frames(init=0, forward=100, log=100)
    found = cause((PHASES, PHASES | {"other": 9e6}), (8e6, 16e6), (before, after))
    assert found is not None
    assert (found.phase, found.phases_ns["other"], found.place) == ("other", [1e6, 9e6], "train.py:12 log")
    assert found.place_ns == pytest.approx(8e6)


def test_a_line_that_explains_little_is_not_named() -> None:
    same = frames(forward=100, log=5)
    found = cause((PHASES, PHASES | {"backward": 5e6}), (8e6, 10e6), (frames(forward=100, log=1), same))
    assert found is not None
    assert (found.phase, found.place) == ("backward", "train.py:10 forward")
    spread = cause(
        (PHASES, PHASES | {"backward": 5e6}),
        (8e6, 10e6),
        (frames(**dict.fromkeys("abcdefghij", 20)), frames(**dict.fromkeys("abcdefghij", 20))),
    )
    assert spread is not None
    assert spread.place is None


def test_without_phases_or_where_nothing_is_longer_nothing_is_said() -> None:
    assert cause(({}, PHASES), (8e6, 9e6), (None, None)) is None
    assert cause((PHASES, PHASES), (9e6, 8e6), (None, None)) is None


def test_without_stacks_the_phase_is_still_said() -> None:
    found = cause((PHASES, PHASES | {"forward": 4e6}), (8e6, 10e6), (None, None))
    assert found is not None
    assert (found.phase, found.place) == ("forward", None)
