"""A remedy that takes long to switch on: announced, waited for, measured, weighed against the horizon."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.records import ExactnessClass, Trial, TuneProgress, Tuning, from_registry
from autobrrr.tuner.arm_switch import ArmSwitch
from autobrrr.tuner.candidate_space import Selection, candidates
from autobrrr.tuner.live_search import tune
from autobrrr.tuner.tuning_budget import WINDOW_NS, TuneSettings, TuningBudget
from support.simulated.tuner import NO_PROCESS, Effect, SimulatedJob, verdict

SECOND_NS = 1_000_000_000
COMPILE = "compile.default"
PRICE_S = REGISTRY[COMPILE].price_s
DEAR = f"needs a {PRICE_S:.0f} s pause (nothing was compiled beside the job: {NO_PROCESS})"
HELPS = Effect(speed=1.3, warm_up_ns=12 * SECOND_NS)
USUAL: tuple[ExactnessClass, ...] = ("bitwise", "rounding")


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
    _, told = tuned(SimulatedJob(effects={COMPILE: HELPS}, crowded_by="fit.py (pid 7) has a core"))
    assert f"training pauses for about {2 * PRICE_S:.0f} s" in told[1].text
    found, told = tuned(SimulatedJob(effects={COMPILE: HELPS}))
    assert f"training pauses for about {PRICE_S:.0f} s" in told[1].text
    assert found.kept == [COMPILE]
    assert found.interval is not None
    assert found.interval[0] <= 1.3 <= found.interval[1]
    assert "training paused for 12.0 s" in only_trial(found).why


def test_what_another_process_compiles_costs_training_little() -> None:
    beside = replace(HELPS, compiles_ns=20 * SECOND_NS)
    job = SimulatedJob(effects={COMPILE: beside})
    found, told = tuned(job, budget_s=120)
    assert "compiling beside the job" in told[0].text
    assert "training pauses for about 2 s" in told[1].text
    assert found.kept == [COMPILE]
    assert "training paused for 1.2 s" in only_trial(found).why


def test_what_our_own_processes_take_from_a_job_without_a_free_cpu_is_lost() -> None:
    job = SimulatedJob(taken=5e9)  # before the tuning began
    budget = TuningBudget(bench=job, board=ArmSwitch(job), settings=TuneSettings(), speed=lambda: 1.0)
    assert budget.may_lose_ns() == pytest.approx(1e9)
    job.taken += 2e9
    budget.enter(3e9, 1.0)
    assert budget.may_lose_ns() == pytest.approx(-4e9)
    assert budget.entered_ns == 3e9  # what comparisons took


@pytest.mark.integration  # a long simulation
def test_a_process_that_slows_training_too_much_is_stopped() -> None:
    crawls = replace(HELPS, compiles_ns=100 * SECOND_NS, slowed=0.5)
    job = SimulatedJob(effects={COMPILE: crawls})
    found = tune(job, verdict=verdict(compile_default=1.04), settings=TuneSettings(budget_ns=120 * SECOND_NS))
    trial = next(each for each in found.trials if each.remedy == COMPILE)
    assert trial.outcome == "skipped"
    why = "(nothing was compiled beside the job: it slowed training down)"
    assert f"needs a {PRICE_S:.0f} s pause {why}" in trial.why
    assert job.now_ns() < 60 * SECOND_NS  # half of what it took was lost: 6 s may be


def test_it_is_paid_once_however_often_it_is_switched() -> None:
    job = SimulatedJob(effects={COMPILE: HELPS})
    _, told = tuned(job)
    assert job.history.count(("apply", COMPILE)) > 6
    assert sum("training pauses" in each.text for each in told) == 1


def test_without_the_time_for_it_it_is_skipped_and_says_how_much_would_do() -> None:
    job = SimulatedJob(effects={COMPILE: HELPS})
    found, _ = tuned(job, budget_s=0.9 * PRICE_S)
    assert only_trial(found).outcome == "skipped"
    assert f"{DEAR}; rerun with --for " in only_trial(found).why
    assert job.history == []


def test_what_can_not_earn_its_price_back_is_not_tried() -> None:
    job = SimulatedJob(effects={COMPILE: HELPS})
    found, _ = tuned(job, horizon_s=PRICE_S)
    assert "more than it can save" in only_trial(found).why
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
        each.remedy
        for each in candidates(
            facts=facts,
            cores=2,
            verdict=None,
            selection=Selection(allowed=("bitwise", "rounding", "stream", "changes-training")),
        )
    ]
    assert listed.index("optimizer.fused") < listed.index("compile.regional") < listed.index(COMPILE)
    assert not {"compile.reduce_overhead", "precision.tf32"} & set(listed)
    named = candidates(
        facts=facts,
        cores=2,
        verdict=None,
        selection=Selection(allowed=("changes-training",), only=("precision.tf32",)),
    )
    assert named == [from_registry("precision.tf32")]


def test_an_option_without_a_default_makes_one_candidate_of_each_value() -> None:
    found = candidates(
        facts=SimulatedJob().facts,
        cores=2,
        verdict=None,
        selection=Selection(allowed=("stream",), only=("attention.sdpa",)),
    )
    assert [each.options["kernel"] for each in found] == ["flash"]
    on_a_gpu = candidates(
        facts=msgspec.structs.replace(SimulatedJob().facts, cuda=True),
        cores=2,
        verdict=None,
        selection=Selection(allowed=("stream",), only=("attention.sdpa",)),
    )
    assert [each.options["kernel"] for each in on_a_gpu] == ["flash", "mem_efficient", "cudnn"]


def test_attention_that_takes_memory_by_the_square_of_the_length_is_for_a_recipe_alone() -> None:
    found = candidates(
        facts=SimulatedJob().facts, cores=2, verdict=None, selection=Selection(allowed=("stream",))
    )
    labels = [each.label for each in found]
    assert "attention.sdpa(kernel=flash)" in labels
    assert "attention.sdpa(kernel=math)" not in labels
    assert REGISTRY["attention.sdpa"].option_values({"kernel": "math"}) == {"kernel": "math"}


@pytest.mark.integration  # a long simulation
@pytest.mark.parametrize(
    ("expected", "interval", "reason"),
    [
        (None, None, "no gain is predicted"),
        (1.04, None, "may not earn it back in 5 minutes"),
        (1.2, [0.9, 1.6], "may not earn it back in 5 minutes [0.90–1.60]"),
        (1.2, [1.1, 1.3], None),
    ],
)
def test_training_pauses_for_long_only_for_a_likely_gain_or_a_name(
    expected: float | None, interval: list[float] | None, reason: str | None
) -> None:
    told = verdict(compile_default=1.0)
    (advice,) = told.advice
    told = msgspec.structs.replace(
        told, advice=[msgspec.structs.replace(advice, expected=expected, interval=interval)]
    )
    job = SimulatedJob(effects={COMPILE: HELPS})
    found = tune(job, verdict=told, settings=TuneSettings(budget_ns=120 * SECOND_NS))
    trial = next(each for each in found.trials if each.remedy == COMPILE)
    if reason is None:
        assert trial.outcome == "kept"
    else:
        assert trial.outcome == "skipped"
        assert trial.why == f"{DEAR} and {reason}; --only {COMPILE} tries it"
        assert ("apply", COMPILE) not in job.history


@pytest.mark.integration  # a long simulation
def test_what_others_gain_pays_for_a_pause_for_which_no_gain_is_predicted() -> None:
    job = SimulatedJob(effects={COMPILE: HELPS, "optimizer.fused": Effect(speed=1.3)})
    found = tune(job, settings=TuneSettings(budget_ns=300 * SECOND_NS, allowed=USUAL))
    assert {COMPILE, "optimizer.fused"} <= set(found.kept)


@pytest.mark.parametrize("slow", [0.3, 0.5, 0.8])
def test_in_five_minutes_the_job_does_nearly_as_much_as_one_that_nobody_tunes(slow: float) -> None:
    """Steps so long that the pairs of a comparison would take more than may be lost."""
    effects = {f"threads.intra_op(threads={count})": Effect(speed=slow) for count in (1, 4, 8)}
    effects |= {"optimizer.fused": Effect(speed=slow), COMPILE: Effect(speed=slow, warm_up_ns=25 * SECOND_NS)}
    tuned, twin = (SimulatedJob(effects=effects, base_ns=8e8, cores=8) for _ in range(2))
    tune(tuned, settings=TuneSettings(budget_ns=200 * SECOND_NS))
    done = [job.steps(0, 1000, WINDOW_NS - job.now_ns()) for job in (tuned, twin)]
    assert len(done[0]) >= 0.98 * len(done[1]) - 1


@pytest.mark.integration  # a long simulation
def test_a_trial_has_its_share_of_the_time_whatever_switching_on_was_expected_to_cost() -> None:
    nothing = Effect(speed=1.0, warm_up_ns=2 * SECOND_NS)
    job = SimulatedJob(effects={COMPILE: nothing})
    settings = TuneSettings(budget_ns=60 * SECOND_NS, allowed=USUAL)
    found = tune(job, verdict=verdict(compile_default=3.0), settings=settings)
    assert found.trials[0].remedy == COMPILE
    others = [each for each in found.trials if each.remedy != COMPILE]
    share_ns = settings.budget_ns / len(found.trials)
    assert found.trials[0].duration_ns < share_ns + 3 * SECOND_NS
    assert "skipped" not in {each.outcome for each in others if not each.remedy.startswith("compile.")}


def test_what_there_is_no_time_for_is_counted_with_the_time_that_would_be_enough() -> None:
    job = SimulatedJob(base_ns=4e8)
    found = tune(job, settings=TuneSettings(budget_ns=30 * SECOND_NS))
    untried = [each for each in found.trials if each.outcome == "skipped"]
    assert untried
    assert found.note is not None
    quick = [each for each in untried if not REGISTRY[each.remedy].price_s]
    assert found.note.startswith(f"there was no time for {len(quick)} of them: --for ")


@pytest.mark.parametrize("cancelled_after", [1, 3])
def test_stopped_while_it_warms_up_nothing_stays_on(cancelled_after: int) -> None:
    job = SimulatedJob(effects={COMPILE: HELPS}, cancel_after_steps=40 + cancelled_after)
    found, _ = tuned(job)
    assert found.kept == []
    assert job.names_on == []
