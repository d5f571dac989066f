"""What was undone is tried again where the step has become so short that its saving counts."""

from __future__ import annotations

import math

from autobrrr.injected.wire import ring_layout
from autobrrr.records import Trial
from autobrrr.tuner.candidate_space import Candidate, Choice
from autobrrr.tuner.live_search import tune
from autobrrr.tuner.retry_undone import Undone, worth_again
from autobrrr.tuner.trial_ledger import TrialLedger
from autobrrr.tuner.tune_settings import TuneSettings
from support.simulated.tuner import Effect, SimulatedJob

FREEZE, FUSED, FOREACH = (
    Choice(remedy=name) for name in ("gc.freeze", "optimizer.fused", "optimizer.foreach")
)


def undone(choice: Choice, high: float, beside: tuple[Choice, ...] = ()) -> Undone:
    candidate = Candidate(choice=choice, predicted=None, rare=False, cls="bitwise")
    return Undone(candidate=candidate, beside=beside, high=math.log(high))


def again(trials: list[Undone], kept: tuple[Choice, ...], gain: float) -> list[Choice]:
    return [each.choice for each in worth_again(trials, kept, lambda choice: gain, 0.01)]


def test_a_saving_counts_more_in_a_shorter_step() -> None:
    assert again([undone(FREEZE, 1.008)], (FUSED,), gain=2.0) == [FREEZE]
    assert again([undone(FREEZE, 1.008)], (FUSED,), gain=1.15) == []
    assert again([undone(FREEZE, 1.03)], (FUSED,), gain=1.05) == []  # hardly shorter: it was seen so already


def test_nothing_is_tried_again_beside_what_it_was_tried_beside() -> None:
    assert again([undone(FREEZE, 1.008, beside=(FUSED,))], (FUSED,), gain=2.0) == []


def test_what_can_only_harm_or_sets_the_same_thing_is_left() -> None:
    assert again([undone(FREEZE, 0.99)], (FUSED,), gain=3.0) == []
    assert again([undone(FOREACH, 1.1)], (FUSED,), gain=3.0) == []


def test_the_largest_saving_comes_first() -> None:
    sdpa = Choice(remedy="attention.sdpa")
    found = again([undone(FREEZE, 1.008), undone(sdpa, 1.009)], (FUSED,), gain=2.0)
    assert found == [sdpa, FREEZE]


def test_a_tuning_finds_what_was_too_small_beside_the_slow_optimizer() -> None:
    job = SimulatedJob(
        effects={
            "threads.intra_op(threads=1)": Effect(speed=1.004, beside={"optimizer.fused": 1.04}),
            "optimizer.fused": Effect(speed=1.8),
        },
        noise=0.01,
    )
    settings = TuneSettings(budget_ns=120_000_000_000, only=("threads.intra_op", "optimizer.fused"), seed=1)
    found = tune(job, settings=settings)
    assert sorted(found.kept) == ["optimizer.fused", "threads.intra_op"]
    assert job.history.index(("apply", "threads.intra_op")) < job.history.index(("apply", "optimizer.fused"))


def test_what_made_the_loss_infinite_is_never_tried_again() -> None:
    job = SimulatedJob(
        effects={
            "threads.intra_op(threads=1)": Effect(speed=1.0),
            "optimizer.fused": Effect(speed=1.8),
        },
        noise=0.01,
    )
    run, steps_with = job._run, 0

    def diverging(count: int) -> None:
        nonlocal steps_with
        first = job.next_seq()
        run(count)
        steps_with += count if "threads.intra_op" in job.names_on else 0
        if steps_with > 200 and "threads.intra_op" in job.names_on:
            records = job._records[first : job.next_seq()]
            records["flags"] |= ring_layout.PHASES
            records["loss_finite"] = 0

    job._run = diverging  # type: ignore[method-assign]
    settings = TuneSettings(budget_ns=120_000_000_000, only=("threads.intra_op", "optimizer.fused"), seed=1)
    found = tune(job, settings=settings)
    assert found.kept == ["optimizer.fused"]
    assert "not finite" in next(each.why for each in found.trials if each.remedy == "threads.intra_op")
    last = max(i for i, change in enumerate(job.history) if change == ("apply", "threads.intra_op"))
    assert last < job.history.index(("apply", "optimizer.fused"))


def test_a_second_look_that_is_skipped_leaves_the_first_as_it_was() -> None:
    told: list[Trial] = []
    ledger = TrialLedger(told.append)
    candidate = undone(FREEZE, 1.008).candidate
    ledger.enter(candidate, "undone", "no gain", "bitwise")
    ledger.enter(candidate, "skipped", "the budget is spent", "bitwise")
    assert [(each.outcome, each.why) for each in ledger.trials] == [("undone", "no gain")]
    assert [each.remedy for each in ledger.reverted()] == ["gc.freeze"]
    assert len(told) == 1
    ledger.enter(candidate, "kept", "faster", "bitwise")
    assert [each.outcome for each in ledger.trials] == ["kept"]
