"""Where two runs part, and of which class that is."""

from __future__ import annotations

import math

import pytest

from autobrrr.prove.parting import sameness
from autobrrr.prove.run_account import RunAccount
from autobrrr.prove.work_rules import refusals
from autobrrr.records.proof_records import Sameness, WorkRefusal
from support.accounts import account, step


def against(after: RunAccount, again: RunAccount | None = None) -> Sameness:
    return sameness(account(), again or account(), after)


def test_equal_runs_are_bitwise() -> None:
    found = against(account(12))
    assert (found.class_, found.deterministic) == ("bitwise", True)
    assert (found.step, found.compared_steps) == (None, 12)


def test_the_first_step_and_the_first_module_are_named() -> None:
    after = account()
    after.steps[1] = step(1, loss=2.5, places=[("first", "fast.py:7", 7, 5.5)])
    found = against(after)
    assert (found.class_, found.step, found.what) == ("changes-training", 1, "output")
    assert (found.module, found.place) == ("first", "fast.py:7")


def test_last_digits_are_rounding_and_their_growth_is_shown() -> None:
    after = account()
    after.steps = [
        step(i, loss=each.loss * (1 + 1e-7 * (i + 1)), parameters=7 + i)  # type: ignore[operator]
        for i, each in enumerate(account().steps)
    ]
    found = against(after)
    assert (found.class_, found.step, found.before_distance) == ("rounding", 0, 0.0)
    assert 1e-6 < found.loss_distance < 2e-6


@pytest.mark.parametrize(("changed", "parted", "told"), [(4, 16, False), (4, 5, False), (8, 2, True)])
def test_only_what_comes_before_the_losses_part_is_no_rounding(changed: int, parted: int, told: bool) -> None:
    """Rounding at first hides no change that comes later; but where it has grown, runs differ in all."""
    after = account()
    steps = [(i, {} if i < parted else {"loss": 9.0}, 0.1 if i < changed else 0.2) for i in range(16)]
    after.steps = [step(i, parameters=7 + i, moved=moved, **loss) for i, loss, moved in steps]
    assert against(after).class_ == ("rounding" if told else "changes-training")


@pytest.mark.parametrize(
    ("later", "code"),
    [
        ({"tokens": 10}, WorkRefusal.SHORTER_SEQUENCES),
        ({"samples": 1, "tokens": 8}, WorkRefusal.DROPPED_SAMPLES),
        ({"backwards": 0}, WorkRefusal.SKIPPED_BACKWARD),
        ({"rows": ["a", "b"]}, WorkRefusal.CACHED_BATCH),
    ],
)
def test_rounding_at_first_allows_no_less_work_later(later: dict[str, object], code: WorkRefusal) -> None:
    after = account()
    after.steps = [step(i, parameters=7 + i, **(later if i >= 4 else {})) for i in range(16)]
    found = against(after)
    assert found.class_ == "rounding"
    assert [each.code for each in refusals(account(), after, "rounding", found.step)] == [code]
    assert refusals(account(), account(parameters=9, backwards=0), "rounding", 0) == []


def test_another_batch_is_another_stream() -> None:
    found = against(account(rows=["x", "y"], loss=3.0))
    assert (found.class_, found.step, found.what) == ("stream", 0, "output" if found.module else "batch")


def test_a_model_with_fewer_parameters_is_no_rounding() -> None:
    assert against(account(elements=40, parameters=1)).class_ == "changes-training"


def test_of_a_run_that_is_not_the_same_twice_nothing_is_said() -> None:
    found = against(account(loss=2.5), again=account(loss=3.0))
    assert (found.class_, found.deterministic) == (None, False)


def test_a_run_that_differs_from_itself_by_rounding_can_still_be_compared() -> None:
    again = account()
    again.steps = [step(i, parameters=3 + i) for i in range(16)]
    assert against(account(parameters=9), again).class_ == "rounding"


def test_losses_that_are_lost_on_both_sides_are_equal() -> None:
    lost = account(loss=math.nan)
    assert sameness(lost, lost, account(loss=math.nan)).class_ == "bitwise"


def test_an_update_in_another_direction_is_no_rounding_though_it_is_as_long() -> None:
    assert against(account(parameters=1)).class_ == "rounding"
    assert against(account(parameters=1, moved_signs=[0.1, -0.0999])).class_ == "changes-training"


def test_a_frozen_bias_that_hardly_matters_is_still_found() -> None:
    after = account(updated=49, parameters=1)
    assert against(after).class_ == "rounding"
    assert [each.code for each in refusals(account(), after, "rounding")] == [WorkRefusal.FROZEN_LAYERS]
