"""What class a point is said to have: what its parameters say at best, wider where the job shows it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from autobrrr.records import ExactnessClass
from autobrrr.relaunch.search.param_specs import parse_parameter
from autobrrr.relaunch.search.point_search import Search
from autobrrr.relaunch.search.search_space import Result, Space, make_space
from autobrrr.relaunch.study.study import CANDIDATE, Study
from autobrrr.relaunch.study.study_findings import Baseline, StudyLedger
from autobrrr.tuner.confidence_sequence import Interval

COMMAND = ["python", "train.py"]
USUAL: tuple[ExactnessClass, ...] = ("bitwise", "rounding")
BASELINE = Baseline(step_ns=1e6, samples=8, tokens=None, facts=None, machine="", script=None)
FOUND = Interval(mean=0.5, low=0.4, high=0.6, count=6)


def space_of(*specs: str, allowed: tuple[ExactnessClass, ...] = USUAL) -> Space:
    parameters = [parse_parameter(spec, COMMAND, {}, {}) for spec in specs]
    return make_space(parameters, COMMAND, {}, allowed)


def applied(remedy: str, cls: str) -> dict[str, object]:
    return {"remedy": remedy, "status": "applied", "why": "", "class": cls}


FOREACH = space_of("optimizer.foreach")
DYNAMIC = space_of("compile.default.dynamic=choice:on,off")


def test_the_widest_class_that_any_process_tells_of_counts() -> None:
    ledger = StudyLedger()
    assert ledger.class_of(FOREACH, (1,)) == "bitwise"
    ledger.hear((1,), [applied("optimizer.foreach", "bitwise")])
    assert ledger.class_of(FOREACH, (1,)) == "bitwise"
    ledger.hear((1,), [applied("optimizer.foreach", "stream"), applied("optimizer.foreach", "bitwise")])
    assert ledger.class_of(FOREACH, (1,)) == "stream"
    ledger.hear((1,), [applied("optimizer.foreach", "bitwise"), {"remedy": "x", "status": "refused"}])
    assert ledger.class_of(FOREACH, (1,)) == "stream"
    assert ledger.class_of(FOREACH, FOREACH.base) == "bitwise"


def test_what_is_heard_never_narrows_what_the_parameters_say() -> None:
    ledger = StudyLedger()
    ledger.hear((1,), [applied("compile.default", "bitwise")])
    assert ledger.class_of(DYNAMIC, (1,)) == "rounding"


@pytest.mark.parametrize(("allowed", "refused"), [(USUAL, True), ((*USUAL, "stream"), False)])
def test_a_class_that_only_the_job_shows_needs_leave_too(
    allowed: tuple[ExactnessClass, ...], refused: bool
) -> None:
    ledger, space = StudyLedger(), replace(DYNAMIC, allowed=allowed)
    ledger.hear((1,), [applied("compile.default", "rounding")])
    ledger.hear((2,), [applied("compile.default", "stream")])
    assert ledger.problem(space, (1,)) is None
    assert (ledger.problem(space, (2,)) is not None) == refused


def test_a_candidate_of_a_class_that_is_not_allowed_is_no_candidate() -> None:
    closed: list[bool] = []
    candidate = SimpleNamespace(
        told=SimpleNamespace(remedies=[applied("optimizer.foreach", "stream")]),
        steps=SimpleNamespace(count=9),
        warm_up=lambda look: True,
        close=lambda: closed.append(True),
    )
    stable = SimpleNamespace(environment={}, start=lambda point: candidate)
    study = Study(stable=stable, space=FOREACH, search=Search(FOREACH))  # type: ignore[arg-type]
    met, ending, _ = study._meet((1,), CANDIDATE)
    assert met is None
    assert ending is not None
    assert (ending.kind, ending.why) == (
        "not_applied",
        "its class is stream on this job; add --allow stream to try it",
    )
    assert closed == [True]


def test_result_trial_and_recipe_tell_the_class_that_was_heard() -> None:
    ledger = StudyLedger()
    ledger.hear((1,), [applied("optimizer.foreach", "stream")])
    entry = ledger.enter(FOREACH, Result(point=(1,), value=0.5, kind="measured"), None, 1)
    tuning, recipe = ledger.conclude(FOREACH, BASELINE, (1,), FOUND, [])
    assert recipe is not None
    assert (entry.class_, tuning.class_, recipe.numerics) == ("stream", "stream", "stream")


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
    space = space_of(spec)
    point = space.points()[0]
    tuning, recipe = StudyLedger().conclude(space, BASELINE, point, FOUND, [])
    assert recipe is not None
    assert (tuning.class_, recipe.numerics) == (cls, cls)
    assert ("random numbers" in (tuning.note or "")) == noted
