"""What is not the same work is refused, each kind with its own reason; what is the same is not."""

from __future__ import annotations

import pytest

from autobrrr.prove.run_account import RunAccount
from autobrrr.prove.work_rules import refusals, work_done
from autobrrr.records.proof_records import WorkRefusal
from support.accounts import account, noted, step


def codes(before: RunAccount, after: RunAccount, same: bool = False) -> list[WorkRefusal]:
    return [each.code for each in refusals(before, after, "rounding" if same else "changes-training")]


def test_two_runs_of_one_script_are_the_same_work() -> None:
    assert codes(account(), account()) == []
    assert codes(account(), account(), same=True) == []


@pytest.mark.parametrize(
    ("after", "code"),
    [
        (account(backwards=0), WorkRefusal.SKIPPED_BACKWARD),
        (account(samples=4), WorkRefusal.SKIPPED_UPDATES),
        (account(updated=0), WorkRefusal.SKIPPED_UPDATES),
        (account(samples=1, tokens=8), WorkRefusal.DROPPED_SAMPLES),
        (account(rows=["a", "b"]), WorkRefusal.CACHED_BATCH),
        (account(tokens=12), WorkRefusal.SHORTER_SEQUENCES),
        (account(updated=40), WorkRefusal.FROZEN_LAYERS),
        (account(flops={"float32": 800}), WorkRefusal.FEWER_OPERATIONS),
        (account(flops={"bfloat16": 1000}), WorkRefusal.LOWER_PRECISION),
        (account(precision="medium"), WorkRefusal.LOWER_PRECISION),
        (account(12), WorkRefusal.FEWER_STEPS),
        (noted(("seeded", "torch.seed(5)", 0)), WorkRefusal.OTHER_SEED),
    ],
)
def test_each_way_of_doing_less_has_its_reason(after: RunAccount, code: WorkRefusal) -> None:
    assert codes(account(), after)[:1] == [code]


def test_samples_that_come_again_later_are_repeated() -> None:
    after = account()
    after.steps = [step(i, rows=[f"{i % 4}-0", f"{i % 4}-1"]) for i in range(16)]
    assert codes(account(), after) == [WorkRefusal.REPEATED_SAMPLES]


def test_a_second_epoch_is_no_repetition() -> None:
    twice = account()
    twice.steps = [step(i, rows=[f"{i % 8}-0", f"{i % 8}-1"]) for i in range(16)]
    assert codes(twice, twice) == []


def test_a_smaller_dataset_is_seen_before_its_end() -> None:
    before, after = noted(("dataset", 100, 0)), noted(("dataset", 50, 0))
    assert codes(before, after) == [WorkRefusal.DROPPED_SAMPLES]


def test_less_evaluation_and_fewer_checkpoints_count_also_where_all_numbers_are_the_same() -> None:
    before = noted(("saved", 4, 4), ("saved", 8, 8), evaluated=10)
    assert codes(before, noted(("saved", 4, 4), evaluated=5), same=True) == [
        WorkRefusal.LESS_EVALUATION,
        WorkRefusal.FEWER_CHECKPOINTS,
    ]


def test_a_checkpoint_that_holds_less_is_no_checkpoint() -> None:
    before = noted(("saved", 3000, 4), ("saved", 3000, 8))
    assert codes(before, noted(("saved", 3000, 4), ("saved", 1000, 8)), same=True) == [
        WorkRefusal.FEWER_CHECKPOINTS
    ]
    assert codes(before, noted(("saved", 2999, 4), ("saved", 3001, 8)), same=True) == []


def test_of_runs_that_were_stopped_only_the_steps_of_both_are_compared() -> None:
    before = noted(("saved", 4, 4), ("saved", 20, 20), count=24, ended=False, evaluated=1)
    after = noted(("saved", 4, 4), count=16, ended=False, evaluated=1)
    assert codes(before, after) == []


def test_the_same_numbers_may_take_fewer_operations() -> None:
    assert codes(account(), account(flops={"float32": 400}), same=True) == []
    assert codes(account(), account(flops={"float32": 400})) == [WorkRefusal.FEWER_OPERATIONS]


def test_what_was_not_counted_refuses_nothing() -> None:
    unseen: dict[str, object] = {"samples": None, "tokens": None, "rows": [], "flops": None}
    assert codes(account(**unseen), account(**unseen)) == []  # type: ignore[arg-type]
    assert work_done(account(**unseen), 4).flops_per_step is None  # type: ignore[arg-type]


def test_work_is_told_as_means_over_the_steps_of_both() -> None:
    found = work_done(noted(("dataset", 100, 0), ("seeded", "torch.seed(0)", 0)), 8)
    assert (found.samples_per_step, found.tokens_per_step, found.backwards_per_step) == (2.0, 16.0, 1.0)
    assert (found.flops_per_step, found.dtypes) == (1000.0, {"float32": 1.0})
    assert (found.dataset_samples, found.seeds, found.updated_share) == (100, ["torch.seed(0)"], 1.0)
