"""What a study need not do again: an ablation that its search has decided; how trials are told."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from autobrrr.relaunch.course import Course
from autobrrr.relaunch.duel import Duel
from autobrrr.relaunch.endings import Ending
from autobrrr.relaunch.findings import judged
from autobrrr.relaunch.search import Result, Search
from autobrrr.relaunch.space import Point, Space
from autobrrr.tuner.interval import Interval
from support.relaunch import parameter

SPACE = Space(parameters=(parameter("--batch-size", 2), parameter("--workers", 2)))


class Started(Exception):
    """A trial, where none is to be."""


def course(*found: Result) -> Course:
    """A study whose search is over."""

    def start(point: Point) -> None:
        raise Started(SPACE.label(point))

    search = Search(SPACE)
    search.results += found
    stable = SimpleNamespace(environment={}, start=start)
    return Course(stable=stable, space=SPACE, search=search)  # type: ignore[arg-type]


def result(point: Point, value: float, half: float = 0.02, origin: str = "") -> Result:
    return Result(point=point, value=value, low=value - half, kind="measured", origin=origin)


WINNER = result((1, 1), 0.5)


def test_what_the_search_has_shown_to_help_is_not_tried_again() -> None:
    study = course(WINNER, result((1, 0), 0.3), result((0, 1), 0.2))
    assert study._ablate((1, 1)) == (1, 1)
    assert study._ablate((1, 0)) == (1, 0)
    assert study._ablate(None) is None


@pytest.mark.parametrize(
    "part",
    [
        result((1, 0), 0.47),
        result((1, 0), 0.3, half=0.2),
        result((1, 0), 0.3, origin="measured on another"),
        Result(point=(1, 0), value=None, kind="crash"),
    ],
)
def test_what_the_search_leaves_open_is_tried_side_by_side(part: Result) -> None:
    study = course(WINNER, part, result((0, 1), 0.2))
    with pytest.raises(Started):
        study._ablate((1, 1))


def duel(mean: float, half: float, *, pruned: bool = False) -> Duel:
    found = Interval(mean=mean, low=mean - half, high=mean + half, count=6)
    return Duel(values=(mean,) * 6, interval=found, steps=100, base_ns=1e6, pruned=pruned)


def test_a_trial_is_told_by_its_interval_or_by_how_it_ended() -> None:
    found = judged((1, 0), duel(0.2, 0.05), None, None)
    assert (found.kind, found.value, found.low) == ("measured", 0.2, pytest.approx(0.15))
    assert "so far" not in found.why
    assert "no better than the best so far" in judged((1, 0), duel(0.2, 0.05, pruned=True), None, None).why
    assert "so far" not in judged((1, 0), duel(-0.2, 0.05, pruned=True), None, None).why
    assert judged((1, 0), None, None, None).kind == "too_short"
    ended = Ending(kind="oom", why="out of memory", lines=("step 1", "Error: odd"))
    told = judged((1, 0), None, ended, 3 << 30)
    assert told.kind == "oom"
    assert told.why == (
        "out of memory (the baseline, which stands by, holds 3.0 GiB of the GPU); last line: Error: odd"
    )
