"""A whole tuning on a simulated job: what it keeps, undoes, reports, and leaves behind."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.agent.remedies.registry import RefusalCode
from autobrrr.errors import AutobrrrError, TargetGone, UsageError
from autobrrr.records import NoClaim, Trial, TuneProgress, Tuning
from autobrrr.report.pages.tuning_parts import tuning_text
from autobrrr.tuner.job_under_test import NotApplied, Steps
from autobrrr.tuner.live_search import tune
from autobrrr.tuner.tuning_budget import SEARCH_SHARE, TuneSettings
from support.simulated.tuner import Effect, SimulatedJob, on_already

SECOND_NS = 1_000_000_000
NOTHING = Effect(speed=1.0)


def tuned(job: SimulatedJob, budget_s: float = 40, **more: object) -> Tuning:
    return tune(job, settings=TuneSettings(budget_ns=int(budget_s * SECOND_NS), **more))  # type: ignore[arg-type]


def trial(tuning: Tuning, remedy: str) -> Trial:
    return next(each for each in tuning.trials if each.remedy == remedy)


def test_what_helps_is_kept_and_stays_on() -> None:
    job = SimulatedJob(effects={"optimizer.fused": Effect(speed=1.2)})
    found = tuned(job, budget_s=20)
    assert found.kept == ["optimizer.fused"]
    assert job.names_on == ["optimizer.fused"]
    assert found.interval is not None
    assert 1 < found.interval[0] <= found.speedup <= found.interval[1]
    assert found.interval[0] <= 1.2 <= found.interval[1]
    assert found.baseline is not None
    assert found.best == pytest.approx(found.baseline / found.speedup, rel=1e-3)
    assert (found.class_, found.clock) == ("rounding", "host")


@pytest.mark.integration  # a long simulation
def test_a_gain_beside_other_programs_is_kept_and_not_claimed_for_a_quiet_machine() -> None:
    who = "the job has no CPU 40 % of the time; fit.py (pid 7) has 97 % of a core"
    found = tuned(SimulatedJob(effects={"optimizer.fused": Effect(speed=1.2)}, crowded_by=who))
    assert found.kept == ["optimizer.fused"]
    assert found.no_claim is NoClaim.CROWDED
    assert (found.speedup, found.interval) == (1.0, None)
    assert who in (found.note or "")
    assert "speed-up 1" not in tuning_text(found)
    assert tuned(SimulatedJob(crowded_by=who)).no_claim is None  # nothing was kept


def test_what_does_nothing_is_undone_and_nothing_is_claimed() -> None:
    job = SimulatedJob()
    found = tuned(job, budget_s=15)
    assert found.kept == []
    assert found.speedup == 1.0
    assert found.interval is None
    assert found.class_ == "bitwise"
    assert job.names_on == []
    assert {each.outcome for each in found.trials} <= {"undone", "skipped"}


@pytest.mark.parametrize("after_steps", [100, 130, 160])
def test_a_paused_job_trains_without_what_is_being_tried(after_steps: int) -> None:
    job = SimulatedJob(effects={"threads.intra_op": Effect(speed=0.7)}, paused_after_steps=after_steps)
    tuned(job, only=("threads.intra_op",))
    assert job.rested_with == [[]]
    assert ("apply", "threads.intra_op") in job.history


def test_what_hurts_is_undone_quickly() -> None:
    job = SimulatedJob(effects={"optimizer.fused": Effect(speed=0.1)})
    hurt = trial(tuned(job, only=("optimizer.fused",)), "optimizer.fused")
    assert hurt.outcome == "undone"
    assert "10 times slower" in hurt.why
    assert hurt.duration_ns < SECOND_NS
    assert job.names_on == []


@pytest.mark.parametrize(("speed", "outcome"), [(1.15, "kept"), (0.25, "undone")])
def test_a_preemption_of_a_few_steps_does_not_end_a_proof(speed: float, outcome: str) -> None:
    class Preempted(SimulatedJob):
        """The first three steps with the remedy come alone; another program takes 6 ms of two of them."""

        struck = False

        def steps(self, first_seq: int, count: int, timeout_ns: int) -> Steps:
            if self.struck or not self.names_on or count <= 3:
                return super().steps(first_seq, count, timeout_ns)
            self.struck = True
            found = super().steps(first_seq, 3, timeout_ns)
            found["end_ns"][1:] += 6_000_000
            return found

    job = Preempted(effects={"optimizer.fused": Effect(speed=speed)})
    assert trial(tuned(job, only=("optimizer.fused",)), "optimizer.fused").outcome == outcome


def test_what_slows_the_whole_machine_is_not_laid_to_the_remedy() -> None:
    class Crowded(SimulatedJob):
        """From the first step with the remedy on, everything takes eight times as long for 400 steps."""

        def _draw(self, count: int) -> NDArray[np.float64]:
            crowded = self._warm and self._count < self.calm_again
            return super()._draw(count) + (np.log(8) if crowded else 0.0)

        calm_again = 400

    job = Crowded(effects={"optimizer.fused": Effect(speed=1.15)})
    assert trial(tuned(job, only=("optimizer.fused",)), "optimizer.fused").outcome == "kept"


def test_gains_add_up_and_the_closing_run_measures_them_together() -> None:
    job = SimulatedJob(
        effects={"optimizer.fused": Effect(speed=1.2), "threads.intra_op(threads=1)": Effect(speed=1.15)},
        seed=1,
    )
    found = tuned(job, only=("optimizer.fused", "threads.intra_op"))
    assert sorted(found.kept) == ["optimizer.fused", "threads.intra_op"]
    assert found.speedup == pytest.approx(1.38, rel=0.04)


def test_of_two_that_set_the_same_thing_the_faster_stays() -> None:
    job = SimulatedJob(
        effects={"optimizer.fused": Effect(speed=1.25), "optimizer.foreach": Effect(speed=1.1)}
    )
    found = tuned(job, only=("optimizer.fused", "optimizer.foreach"))
    assert found.kept == ["optimizer.fused"]
    assert job.names_on == ["optimizer.fused"]


@pytest.mark.integration  # a long simulation
def test_two_that_set_the_same_thing_are_never_on_together() -> None:
    job = SimulatedJob(effects={"optimizer.fused": Effect(speed=1.2), "optimizer.foreach": Effect(speed=1.1)})
    seen: list[set[str]] = []
    apply = job.apply

    def watched(remedy: str, options: dict[str, object]) -> object:
        done = apply(remedy, options)
        seen.append(set(job.names_on))
        return done

    job.apply = watched  # type: ignore[method-assign, assignment]
    tuned(job)
    assert seen
    assert not any({"optimizer.fused", "optimizer.foreach"} <= on for on in seen)


def test_code_is_compiled_for_the_threads_that_are_kept_and_they_never_change_under_it() -> None:
    job = SimulatedJob(
        effects={"threads.intra_op(threads=1)": Effect(speed=1.3), "compile.default": Effect(speed=1.3)}
    )
    found = tuned(job, only=("threads.intra_op", "compile.default"), budget_s=300)
    assert found.kept == ["threads.intra_op", "compile.default"]
    compiled = False
    for what, remedy in job.history:
        assert remedy == "compile.default" or not compiled
        compiled = (what == "apply") if remedy == "compile.default" else compiled


@pytest.mark.integration  # a long simulation
@pytest.mark.parametrize("seen", [True, False])
def test_samples_that_differ_in_length_hide_no_gain_where_their_tokens_are_seen(seen: bool) -> None:
    job = SimulatedJob(
        effects={"optimizer.fused": Effect(speed=1.05)}, base_ns=2e7, lengths=0.5, lengths_seen=seen, seed=3
    )
    found = tuned(job, only=("optimizer.fused",), budget_s=60)
    assert found.kept == (["optimizer.fused"] if seen else [])
    assert not seen or found.speedup == pytest.approx(1.05, abs=0.02)


def test_what_no_longer_pays_beside_the_rest_is_taken_away_at_the_end() -> None:
    job = SimulatedJob(
        effects={
            "threads.intra_op(threads=1)": Effect(speed=1.06, beside={"optimizer.fused": 0.97}),
            "optimizer.fused": Effect(speed=1.4),
        }
    )
    found = tuned(job, only=("optimizer.fused", "threads.intra_op"), budget_s=60)
    assert found.kept == ["optimizer.fused"]
    assert "no longer pays" in trial(found, "threads.intra_op").why
    assert [each.remedy for each in found.reverted] == ["threads.intra_op"]


def test_a_large_gain_of_a_slow_job_is_proven_by_few_short_blocks() -> None:
    job = SimulatedJob(
        base_ns=400e6, noise=0.2, effects={"threads.intra_op(threads=1)": Effect(speed=8)}, evaluation_every=0
    )
    found = tuned(job, budget_s=40)
    assert "threads.intra_op" in found.kept
    assert found.interval is not None
    assert found.interval[0] > 3


@pytest.mark.integration  # a long simulation
def test_what_looks_promising_may_use_the_time_of_those_after_it() -> None:
    job = SimulatedJob(seed=4, base_ns=20e6, effects={"threads.intra_op(threads=1)": Effect(speed=1.03)})
    tuning = tuned(job, budget_s=60)
    found = trial(tuning, "threads.intra_op")
    assert found.outcome == "kept"
    assert found.duration_ns > 0.55 * 60e9 / len(tuning.trials)


def test_a_refusal_is_reported_with_its_reason() -> None:
    job = SimulatedJob(effects={"optimizer.fused": Effect(refuses="LBFGS: no fused kernel")})
    refused = trial(tuned(job, only=("optimizer.fused",)), "optimizer.fused")
    assert (refused.outcome, refused.why) == ("refused", "LBFGS: no fused kernel")
    assert refused.achieved is None


def test_bitwise_alone_never_tries_what_rounds() -> None:
    job = SimulatedJob()
    tried = {each.remedy for each in tuned(job, allowed=("bitwise",), budget_s=10).trials}
    assert "optimizer.foreach" in tried
    assert {REGISTRY[name].cls for name in tried} == {"bitwise"}


def test_a_remedy_that_the_job_drops_is_not_kept() -> None:
    job = SimulatedJob(effects={"optimizer.fused": Effect(speed=1.3, lost_after_steps=20)})
    found = tuned(job, only=("optimizer.fused",))
    assert found.kept == []
    assert "replaced its optimizer" in trial(found, "optimizer.fused").why


def test_a_pause_that_the_horizon_does_not_earn_back_is_not_worth_it() -> None:
    effects = {"optimizer.fused": Effect(speed=1.1, pause_ns=20 * SECOND_NS)}
    short = tuned(SimulatedJob(effects=effects), only=("optimizer.fused",), horizon_ns=60 * SECOND_NS)
    long = tuned(SimulatedJob(effects=effects), only=("optimizer.fused",), horizon_ns=3600 * SECOND_NS)
    assert short.kept == []
    assert long.kept == ["optimizer.fused"]


def test_a_remedy_under_which_no_step_ends_is_taken_off() -> None:
    job = SimulatedJob(stuck_with="optimizer.fused")
    stuck = trial(tuned(job, only=("optimizer.fused",), budget_s=300), "optimizer.fused")
    assert stuck.outcome == "undone"
    assert "only 0 steps ended" in stuck.why
    assert job.names_on == []


def test_a_budget_too_short_for_proof_keeps_nothing_and_says_what_would_do() -> None:
    job = SimulatedJob(base_ns=3e9, effects={"optimizer.fused": Effect(speed=2.0)})
    found = tuned(job, budget_s=60, only=("optimizer.fused",))
    assert found.kept == []
    assert found.trials[0].outcome == "skipped"
    assert f"--for {found.enough_s}s would do" in (found.note or "")


def test_a_job_that_makes_no_steps_is_an_error_not_a_result() -> None:
    with pytest.raises(AutobrrrError, match="only 0 steps"):
        tuned(SimulatedJob(stands_still=True))


@pytest.mark.integration  # a long simulation
def test_the_budget_is_kept() -> None:
    for budget_s in (5, 20, 60):
        job = SimulatedJob(effects={"optimizer.fused": Effect(speed=1.02)})
        tuned(job, budget_s=budget_s)
        assert job.now_ns() < (budget_s + 3) * SECOND_NS


@given(st.integers(0, 12_000), st.integers(0, 100))
def test_stopped_at_any_moment_only_what_is_kept_stays_on(after_steps: int, seed: int) -> None:
    job = SimulatedJob(
        seed=seed,
        effects={"optimizer.fused": Effect(speed=1.2), "threads.intra_op(threads=1)": Effect(speed=1.1)},
        cancel_after_steps=after_steps,
    )
    found = tuned(job)
    assert sorted(job.names_on) == sorted(found.kept)
    if found.interval is None and found.kept:
        assert found.note is not None


@given(st.integers(0, 8_000))
def test_a_job_that_ends_is_an_error_of_its_own(after_steps: int) -> None:
    with pytest.raises(TargetGone):
        tuned(SimulatedJob(gone_after_steps=after_steps))


def with_one_on(*, by_recipe: bool) -> tuple[SimulatedJob, Tuning]:
    """A job that an earlier tuning, or its recipe, has put one remedy on; and what a tuning finds."""
    job = SimulatedJob(
        effects={"optimizer.fused": Effect(speed=1.2), "threads.intra_op(threads=1)": Effect(speed=1.1)}
    )
    on = [on_already(job, "optimizer.fused")]
    asked = TuneSettings(budget_ns=40 * SECOND_NS)
    how = {"standing": tuple(on)} if by_recipe else {"already": on}
    return job, tune(job, settings=asked, **how)


def test_what_was_on_already_counts_and_is_measured_against_all_off() -> None:
    _, found = with_one_on(by_recipe=False)
    assert found.kept == ["optimizer.fused", "threads.intra_op"]
    assert found.speedup == pytest.approx(1.32, rel=0.04)


def test_what_the_recipe_put_on_stays_on_in_every_arm_and_nothing_replaces_it() -> None:
    job, found = with_one_on(by_recipe=True)
    assert ("undo", "optimizer.fused") not in job.history
    assert job.names_on == ["optimizer.fused", "threads.intra_op"]
    assert found.kept == ["threads.intra_op"]
    assert found.speedup == pytest.approx(1.1, rel=0.04)
    assert trial(found, "optimizer.fused").outcome == "kept"
    assert found.class_ == "rounding"
    refused = trial(found, "optimizer.foreach")
    assert (refused.outcome, refused.why) == ("refused", "optimizer.fused sets the same thing and stays on")


class RefusesAtFirst(SimulatedJob):
    """It has not shown yet what a remedy is for."""

    asked = 0

    def apply(self, remedy: str, options: Mapping[str, object]) -> tuple[int, int]:
        self.asked += remedy == "optimizer.fused"
        if remedy == "optimizer.fused" and self.asked == 1:
            raise NotApplied("no DataLoader has been seen yet", RefusalCode.NOT_MET)
        return super().apply(remedy, options)


def test_a_refusal_that_time_would_lift_is_asked_again() -> None:
    job = RefusesAtFirst(effects={"optimizer.fused": Effect(speed=1.3)})
    assert tuned(job, only=("optimizer.fused",)).kept == ["optimizer.fused"]


def test_with_nothing_kept_the_budget_is_used_for_trials() -> None:
    job = SimulatedJob(base_ns=4e8)
    found = tuned(job, budget_s=60, allowed=("bitwise", "rounding", "stream"))
    assert any("are left for trials" in each.why for each in found.trials)
    assert job.now_ns() > SEARCH_SHARE * 60 * SECOND_NS


def test_what_is_named_and_not_allowed_is_told_with_the_class_that_would_do() -> None:
    (told,) = tuned(SimulatedJob(), only=("precision.float32_matmul_precision",)).trials
    assert told.outcome == "skipped"
    assert told.why == "its class is changes-training; --allow changes-training tries it"


class RefusesLater(SimulatedJob):
    """From a stage of the tuning on, a remedy does not come on again."""

    refused: str = ""

    def apply(self, remedy: str, options: Mapping[str, object]) -> tuple[int, int]:
        if remedy == self.refused:
            raise NotApplied("the loader has begun its epoch")
        return super().apply(remedy, options)


@pytest.mark.parametrize("stage", ["ablation", "final"])
def test_what_is_refused_when_it_is_compared_again_goes_and_the_rest_is_proven(stage: str) -> None:
    job = RefusesLater(
        effects={"optimizer.fused": Effect(speed=1.2), "threads.intra_op(threads=1)": Effect(speed=1.15)}
    )

    def told(now: TuneProgress) -> None:
        if now.stage == stage:
            job.refused = "optimizer.fused"

    names = (
        ("threads.intra_op", "optimizer.fused")
        if stage == "final"
        else ("optimizer.fused", "threads.intra_op")
    )
    found = tune(job, settings=TuneSettings(budget_ns=60 * SECOND_NS, only=names), on_progress=told)
    assert found.kept == ["threads.intra_op"]
    assert job.names_on == ["threads.intra_op"]
    assert "could not be applied again" in trial(found, "optimizer.fused").why
    assert found.interval is not None
    assert found.interval[0] <= 1.15 <= found.interval[1]


def test_progress_tells_stage_figures_and_time() -> None:
    told: list[TuneProgress] = []
    ended: list[Trial] = []
    job = SimulatedJob(effects={"optimizer.fused": Effect(speed=1.2)})
    tune(
        job,
        settings=TuneSettings(budget_ns=30 * SECOND_NS, only=("optimizer.fused",)),
        on_progress=told.append,
        on_trial=ended.append,
    )
    assert {each.stage for each in told} == {"trial", "final"}
    assert [each.elapsed_ns for each in told] == sorted(each.elapsed_ns for each in told)
    begun = [each.text for each in told if not each.pairs]
    assert begun == ["trying optimizer.fused", "confirmation run, all together"]
    assert [each.outcome for each in ended] == ["kept"]


@pytest.mark.parametrize("only", ["optimizer.fuse", "compile.defaults"])
def test_a_remedy_that_does_not_exist_is_a_usage_error(only: str) -> None:
    with pytest.raises(UsageError, match="no such remedy"):
        tuned(SimulatedJob(), only=(only,))


@pytest.mark.nightly
@pytest.mark.integration  # a long simulation
def test_a_remedy_that_does_nothing_is_seldom_kept() -> None:
    kept = sum(bool(tuned(SimulatedJob(seed=seed), only=("optimizer.fused",)).kept) for seed in range(120))
    # 1 % allowed for one comparison, and a second proof in the closing run.
    assert kept <= 3


@pytest.mark.parametrize("pairs", [6, 12])
def test_what_loses_the_loss_in_the_confirmation_run_is_not_kept(pairs: int) -> None:
    class Diverges(SimulatedJob):
        late = False

        def _loss(self) -> int:
            return 0 if self.late and self.names_on else 1

    job = Diverges(effects={"optimizer.fused": Effect(speed=1.2)})

    def told(now: TuneProgress) -> None:
        job.late = job.late or (now.stage == "final" and now.pairs >= pairs)

    only = TuneSettings(budget_ns=40 * SECOND_NS, only=("optimizer.fused",))
    found = tune(job, settings=only, on_progress=told)
    assert job.late
    assert (found.kept, found.speedup, found.interval, job.names_on) == ([], 1.0, None, [])
    assert "the loss was not finite" in trial(found, "optimizer.fused").why


def test_the_gain_of_all_is_not_claimed_for_those_that_are_left() -> None:
    class LosesOne(SimulatedJob):
        gone = False

        def crowd(self, last_ns: int) -> str | None:  # it is asked for after the closing run
            self.gone = True
            self.lose("optimizer.fused")
            return super().crowd(last_ns)

        def apply(self, remedy, options):  # type: ignore[no-untyped-def]
            if self.gone and remedy == "optimizer.fused":
                raise NotApplied("a call in training failed so")
            return super().apply(remedy, options)

    job = LosesOne(effects={"optimizer.fused": Effect(speed=1.3), "gc.freeze": Effect(speed=1.1)})
    found = tuned(job, budget_s=80, only=("optimizer.fused", "gc.freeze"))
    assert (found.kept, found.interval) == (["gc.freeze"], None)
    assert found.speedup < 1.2


class Stalls(SimulatedJob):
    """With the remedy one step in 60 is ten times as long: 1.05 x typically, 0.91 x over all."""

    def _stretched(self, took: NDArray[np.float64]) -> NDArray[np.float64]:
        long = self._random.random(len(took)) < 1 / 60
        return np.where(long & bool(self.names_on), 10 * took, took)


@pytest.mark.integration  # a long simulation
def test_what_makes_usual_steps_shorter_and_all_of_them_longer_is_not_claimed() -> None:
    for seed in range(3):
        job = Stalls(seed=seed, effects={"optimizer.fused": Effect(speed=1.05)})
        found = tuned(job, budget_s=60, only=("optimizer.fused",))
        assert (found.kept, found.speedup, job.names_on) == ([], 1.0, [])


@pytest.mark.nightly
@pytest.mark.integration  # long simulations
def test_long_steps_of_a_remedy_count_in_a_job_of_few_steps_too() -> None:
    kept = 0
    for seed in range(20):
        job = Stalls(seed=seed, effects={"optimizer.fused": Effect(speed=1.05)}, base_ns=20_000_000)
        kept += bool(tuned(job, budget_s=60, only=("optimizer.fused",)).kept)
    assert kept <= 4  # 17 without the look at long steps; where none falls into the pairs, none is seen


class Bursts(SimulatedJob):
    """Whatever is on, some 8 steps in a row now and then take six times as long: another program's turn."""

    left = 0

    def _stretched(self, took: NDArray[np.float64]) -> NDArray[np.float64]:
        for at in range(len(took)):
            if not self.left and self._random.random() < 1 / 600:
                self.left = int(self._random.integers(4, 16))
            if self.left:
                took[at] *= 6
                self.left -= 1
        return took


@pytest.mark.nightly
@pytest.mark.integration  # long simulations
def test_long_steps_that_come_in_a_row_are_not_laid_to_the_remedy() -> None:
    for seed in range(20):
        job = Bursts(seed=seed, effects={"optimizer.fused": Effect(speed=1.1)})
        found = tuned(job, budget_s=60, only=("optimizer.fused",))
        assert "long ones" not in found.trials[0].why


def test_a_remedy_with_which_the_loss_is_not_finite_is_undone_at_once() -> None:
    class Diverges(SimulatedJob):
        def _loss(self) -> int:
            return 0 if "optimizer.fused" in self.names_on else 1

    job = Diverges(effects={"optimizer.fused": Effect(speed=2.0), "optimizer.foreach": Effect(speed=1.2)})
    found = tuned(job, only=("optimizer.fused", "optimizer.foreach"))
    lost = trial(found, "optimizer.fused")
    assert lost.outcome == "undone"
    assert "the loss was not finite" in lost.why
    assert lost.steps == 0
    assert found.kept == ["optimizer.foreach"]


def test_a_loss_that_is_known_one_sampled_step_late_is_still_laid_to_the_remedy() -> None:
    class Diverges(SimulatedJob):
        """Once it has been on for a while the loss is lost, which shows with a later step."""

        spoilt = 0

        def _loss(self) -> int:
            # Never long enough on for two sampled steps: the answer comes when it is off again.
            known = self.spoilt > 1 and not self.names_on
            self.spoilt += bool(self.names_on)
            return 0 if known else -1 if self.names_on else 1

    found = tuned(Diverges(effects={"optimizer.fused": Effect(speed=2.0)}), only=("optimizer.fused",))
    assert "the loss was not finite" in trial(found, "optimizer.fused").why
    assert found.kept == []
