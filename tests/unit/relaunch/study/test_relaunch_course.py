"""What a study need not do again: an ablation that its search has decided; how trials are told."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Literal

import pytest

from autobrrr.records import ExactnessClass
from autobrrr.relaunch.search.param_specs import parse_parameter
from autobrrr.relaunch.search.point_search import Search
from autobrrr.relaunch.search.search_space import Point, Result, Space, make_space
from autobrrr.relaunch.study.study import Study
from autobrrr.relaunch.study.study_findings import Baseline, conclude, judged, trial_of
from autobrrr.relaunch.study.timed_turns import Duel
from autobrrr.relaunch.trial.trial_endings import Kind, TrialEnding
from autobrrr.tuner.confidence_sequence import Interval
from support.relaunch import parameter

SPACE = Space(parameters=(parameter("--batch-size", 2), parameter("--workers", 2)))


class Started(Exception):
    """A trial, where none is to be."""


def course(*found: Result) -> Study:
    """A study whose search is over."""

    def start(point: Point) -> None:
        raise Started(SPACE.label(point))

    search = Search(SPACE)
    search.results += found
    stable = SimpleNamespace(environment={}, start=start)
    return Study(stable=stable, space=SPACE, search=search)  # type: ignore[arg-type]


def result(point: Point, value: float, half: float = 0.02, origin: str = "") -> Result:
    return Result(point=point, value=value, low=value - half, kind="measured", origin=origin)


WINNER = result((1, 1), 0.5)


def test_what_the_search_has_shown_to_help_is_not_tried_again() -> None:
    study = course(WINNER, result((1, 0), 0.3), result((0, 1), 0.2))
    assert study._ablate((1, 1)) == (1, 1)
    assert study._ablate((1, 0)) == (1, 0)
    assert study._ablate(SPACE.base) == SPACE.base


@pytest.mark.parametrize(
    ("kind", "left"), [("oom", (1, 1)), ("not_applied", (1, 1)), ("too_short", (1, 0)), (None, (1, 0))]
)
def test_a_winner_is_not_peeled_down_to_what_failed_while_it_was_compared(
    kind: Kind | None, left: Point, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = course(WINNER, result((0, 1), 0.1))

    def start(point: Point) -> SimpleNamespace:
        ending = None if kind is None or point == (1, 1) else TrialEnding(kind=kind, why="it failed")
        return SimpleNamespace(ending=ending, steps=SimpleNamespace(count=0), close=lambda: None)

    study.stable.start = start  # type: ignore[method-assign, assignment]
    alike = Duel(
        values=(0.0,) * 4, interval=Interval(mean=0.0, low=-0.1, high=0.1, count=4), steps=8, base_ns=1.0
    )
    monkeypatch.setattr("autobrrr.relaunch.study.timed_turns.settle_in_turn", lambda *_: True)
    monkeypatch.setattr("autobrrr.relaunch.study.study.duel", lambda *_, **more: alike)
    assert study._ablate((1, 1)) == left


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
    ended = TrialEnding(kind="oom", why="out of memory", lines=("step 1", "Error: odd"))
    told = judged((1, 0), None, ended, 3 << 30)
    assert told.kind == "oom"
    assert told.why == (
        "out of memory (the suspended baseline holds 3.00 GB of the GPU); last line: Error: odd"
    )


@pytest.mark.parametrize("kind", ["crash", "nan", "oom", "hang"])
def test_who_fails_while_it_is_compared_has_not_been_measured(kind: Kind) -> None:
    found = judged((1, 0), duel(0.2, 0.05), TrialEnding(kind=kind, why="it is gone"), None)
    assert (found.value, found.kind, found.why) == (None, kind, "it is gone")


def test_who_comes_to_its_end_while_it_is_compared_has_been_measured() -> None:
    assert judged((1, 0), duel(0.2, 0.05), TrialEnding(kind="too_short", why="it ended"), None).value == 0.2


def test_what_long_steps_have_taken_off_is_said_and_a_trial_shows_its_figures() -> None:
    found = judged((1, 0), replace(duel(0.05, 0.05), lost=-0.25), None, None)
    assert "from occasional long steps" in found.why
    shown = trial_of(SPACE, found)
    assert (shown.outcome, shown.blocks, shown.steps) == ("undone", 12, 100)
    assert shown.achieved == pytest.approx(math.exp(0.05), abs=1e-4)
    assert shown.interval == pytest.approx([1.0, math.exp(0.1)])
    assert trial_of(SPACE, found, (1, 0)).outcome == "kept"


class Fails(SimpleNamespace):
    """A live trial, of which only how it ended counts."""

    steps = SimpleNamespace(count=0)

    def look(self) -> None: ...

    def close(self, *words: object) -> None: ...


def test_a_winner_that_fails_in_a_fresh_start_is_not_confirmed() -> None:
    study = course(WINNER)
    trials = [Fails(ending=None), Fails(ending=TrialEnding(kind="crash", why="exit code 1: odd"))]
    study.stable.start = lambda point: trials[len(study.space.changed(point)) > 0]  # type: ignore[method-assign]
    assert study._confirm((1, 1)) is None
    assert study._notes == ["a fresh start failed: after: exit code 1: odd"]


@pytest.mark.parametrize(
    ("name", "kind", "known"),
    [("env:OMP_NUM_THREADS", "variable", True), ("--batch-size", "flag", False), ("--workers", "flag", True)],
)
def test_the_time_of_a_step_is_evidence_only_where_steps_hold_the_same(
    name: str, kind: Literal["flag", "variable"], known: bool
) -> None:
    space = Space(parameters=(replace(parameter(name, 2), kind=kind),))
    base = Baseline(step_ns=2e6, samples=8, script="train.py")
    gain = Interval(mean=math.log(2), low=0.6, high=0.8, count=9)
    _, recipe = conclude(space, base, [], (1,), gain, notes=[])
    assert recipe.evidence.best_ns == (pytest.approx(1e6) if known else None)


@pytest.mark.parametrize(
    ("spec", "cls", "noted"),
    [
        ("--num-workers=choice:0,2", "stream", True),
        ("--prefetch-factor=choice:2,4", "stream", True),
        ("--pin-memory=choice:on,off", "bitwise", False),
        ("loader.workers", "stream", True),
    ],
)
def test_what_feeds_needs_no_leave_and_tells_its_class(spec: str, cls: ExactnessClass, noted: bool) -> None:
    command = ["python", "train.py"]
    space = make_space([parse_parameter(spec, command, {}, {})], command, {}, ("bitwise", "rounding"))
    gain = Interval(mean=0.5, low=0.4, high=0.6, count=6)
    base = Baseline(step_ns=1e6, samples=8)
    tuning, recipe = conclude(space, base, [], space.points()[0], gain, notes=[])
    assert recipe is not None
    assert (tuning.class_, recipe.numerics) == (cls, cls)
    assert ("random numbers" in (tuning.note or "")) == noted
