"""What class a point is said to have: the widest of what differs."""

from __future__ import annotations

import pytest

from autobrrr.records import ExactnessClass
from autobrrr.relaunch.search.param_specs import parse_parameter
from autobrrr.relaunch.search.search_space import Space, make_space
from autobrrr.relaunch.study.study_findings import Baseline, StudyLedger
from autobrrr.tuner.confidence_sequence import Interval

COMMAND = ["python", "train.py"]
USUAL: tuple[ExactnessClass, ...] = ("bitwise", "rounding")
BASELINE = Baseline(step_ns=1e6, samples=8, tokens=None, facts=None, machine="", script=None)
FOUND = Interval(mean=0.5, low=0.4, high=0.6, count=6)


def space_of(*specs: str, allowed: tuple[ExactnessClass, ...] = USUAL) -> Space:
    parameters = [parse_parameter(spec, COMMAND, {}, {}) for spec in specs]
    return make_space(parameters, COMMAND, {}, allowed)


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
