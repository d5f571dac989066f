"""A remedy that takes long to switch on: announced, waited for, measured, weighed against the horizon."""

from __future__ import annotations

import pytest

from autobrrr.records import Trial, TuneProgress, Tuning
from autobrrr.remedies.catalog import REGISTRY
from autobrrr.tuner.live import tune
from autobrrr.tuner.settings import TuneSettings
from autobrrr.tuner.space import Choice, candidates
from support.tuner import Effect, SimulatedJob

SECOND_NS = 1_000_000_000
COMPILE = "compile.default"
PRICE_S = REGISTRY[COMPILE].price_s
HELPS = Effect(speed=1.3, warm_up_ns=12 * SECOND_NS)


def tuned(
    job: SimulatedJob, *, budget_s: float = 300, horizon_s: float = 1800, only: tuple[str, ...] = (COMPILE,)
) -> tuple[Tuning, list[TuneProgress]]:
    told: list[TuneProgress] = []
    chosen = TuneSettings(
        budget_ns=int(budget_s * SECOND_NS), horizon_ns=int(horizon_s * SECOND_NS), only=only
    )
    return tune(job, settings=chosen, on_progress=told.append), told


def only_trial(found: Tuning) -> Trial:
    (trial,) = found.trials
    return trial


def test_the_stall_is_announced_waited_for_and_left_out_of_the_gain() -> None:
    found, told = tuned(SimulatedJob(effects={COMPILE: HELPS}))
    assert f"stands still for about {PRICE_S:.0f} s" in told[0].text
    assert found.kept == [COMPILE]
    assert found.interval is not None
    assert found.interval[0] <= 1.3 <= found.interval[1]
    assert "training stood still for 12.0 s" in only_trial(found).why


def test_it_is_paid_once_however_often_it_is_switched() -> None:
    job = SimulatedJob(effects={COMPILE: HELPS})
    _, told = tuned(job)
    assert job.history.count(("apply", COMPILE)) > 6
    assert sum("stands still" in each.text for each in told) == 1


def test_without_the_time_for_it_it_is_skipped_and_says_how_much_would_do() -> None:
    job = SimulatedJob(effects={COMPILE: HELPS})
    found, _ = tuned(job, budget_s=0.9 * PRICE_S)
    assert only_trial(found).outcome == "skipped"
    assert f"stops training for about {PRICE_S:.0f} s; --for " in only_trial(found).why
    assert job.history == []


def test_what_can_not_earn_its_price_back_is_not_tried() -> None:
    job = SimulatedJob(effects={COMPILE: HELPS})
    found, _ = tuned(job, horizon_s=PRICE_S)
    assert "more than it is likely to save" in only_trial(found).why
    assert job.history == []


def test_a_gain_below_the_measured_price_is_undone() -> None:
    slow = Effect(speed=1.05, warm_up_ns=int(60 * SECOND_NS))
    short, _ = tuned(SimulatedJob(effects={COMPILE: slow}), horizon_s=300)
    long, _ = tuned(SimulatedJob(effects={COMPILE: slow}), horizon_s=36000)
    assert short.kept == []
    assert long.kept == [COMPILE]


def test_what_breaks_while_it_warms_up_is_undone_with_its_reason() -> None:
    broken = Effect(speed=1.3, warm_up_ns=SECOND_NS, lost_after_steps=2)
    job = SimulatedJob(effects={COMPILE: broken})
    found, _ = tuned(job)
    assert only_trial(found).outcome == "undone"
    assert "could not be held" in only_trial(found).why
    assert job.names_on == []


def test_what_never_gets_going_is_given_up() -> None:
    job = SimulatedJob(stuck_with=COMPILE)
    found, _ = tuned(job, budget_s=3000)
    assert "not running after" in only_trial(found).why
    assert job.names_on == []


def test_dear_and_unproven_remedies_come_last_or_by_name_only() -> None:
    facts = SimulatedJob().facts
    listed = [
        each.choice.remedy
        for each in candidates(
            facts=facts, cores=2, verdict=None, allowed=("bitwise", "rounding", "stream", "changes-training")
        )
    ]
    assert listed.index("optimizer.fused") < listed.index("compile.regional") < listed.index(COMPILE)
    assert not {"compile.reduce_overhead", "precision.tf32", "recompute.checkpoint"} & set(listed)
    named = candidates(
        facts=facts, cores=2, verdict=None, allowed=("bitwise",), only=("recompute.checkpoint",)
    )
    assert [each.choice for each in named] == [Choice(remedy="recompute.checkpoint")]


def test_an_option_without_a_default_makes_one_candidate_of_each_value() -> None:
    found = candidates(
        facts=SimulatedJob().facts, cores=2, verdict=None, allowed=("rounding",), only=("attention.sdpa",)
    )
    assert [each.choice.settings["kernel"] for each in found] == ["flash", "mem_efficient", "cudnn", "math"]


@pytest.mark.parametrize("cancelled_after", [1, 3])
def test_stopped_while_it_warms_up_nothing_stays_on(cancelled_after: int) -> None:
    job = SimulatedJob(effects={COMPILE: HELPS}, cancel_after_steps=40 + cancelled_after)
    found, _ = tuned(job)
    assert found.kept == []
    assert job.names_on == []


@pytest.mark.parametrize("lingers_steps", [0, 8])
def test_steps_that_still_profit_after_an_undo_are_no_measure_of_the_job_without(lingers_steps: int) -> None:
    job = SimulatedJob(
        effects={"host.malloc": Effect(speed=2.0, lingers_steps=lingers_steps)}, base_ns=20_000_000.0
    )
    found = tune(job, settings=TuneSettings(only=("host.malloc",)))
    assert found.kept == ["host.malloc"]
    assert found.speedup == pytest.approx(2.0, rel=0.05)
