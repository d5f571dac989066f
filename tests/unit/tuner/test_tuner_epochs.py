"""What takes effect with an epoch is compared epoch by epoch, where enough of them fit into the time."""

from __future__ import annotations

import pytest

from autobrrr.tuner.live_search import tune
from autobrrr.tuner.tuning_budget import TuneSettings
from support.simulated.tuner import Effect, SimulatedJob

SECOND_NS = 1_000_000_000
WORKERS = ("loader.workers",)


def settings(*only: str, budget_s: int = 60) -> TuneSettings:
    return TuneSettings(budget_ns=budget_s * SECOND_NS, allowed=("bitwise", "rounding", "stream"), only=only)


def job(speed: float, epoch_steps: int, **more: Effect) -> SimulatedJob:
    effects = {"loader.workers": Effect(speed=speed), **more}
    return SimulatedJob(
        base_ns=5_000_000, epoch_steps=epoch_steps, effects=effects, evaluation_every=0, checkpoint_every=0
    )


def test_a_gain_that_comes_with_the_next_epoch_is_proven_by_alternating_epochs() -> None:
    found = tune(bench := job(1.5, 100), settings=settings(*WORKERS))
    (trial,) = found.trials
    assert trial.outcome == "kept"
    assert trial.achieved == pytest.approx(1.5, rel=0.1)
    assert trial.steps == 100 * trial.blocks
    assert (found.class_, bench.names_on) == ("stream", ["loader.workers"])
    assert found.interval is not None
    assert found.interval[0] > 1


@pytest.mark.integration  # a long simulation
def test_what_brings_nothing_goes_off_again() -> None:
    found = tune(bench := job(1.0, 60), settings=settings(*WORKERS, budget_s=30))
    assert (found.kept, bench.names_on) == ([], [])


def test_a_remedy_that_acts_at_once_is_kept_out_of_the_epoch_before() -> None:
    bench = job(1.4, 40, **{"optimizer.fused": Effect(speed=1.3)})
    found = tune(bench, settings=settings(*WORKERS, "optimizer.fused"))
    assert sorted(found.kept) == ["loader.workers", "optimizer.fused"]
    assert found.speedup == pytest.approx(1.4 * 1.3, rel=0.1)


@pytest.mark.parametrize("epoch_steps", [1_500, 1_000_000])
def test_long_epochs_are_left_to_a_new_start_soon(epoch_steps: int) -> None:
    found = tune(bench := job(1.5, epoch_steps), settings=settings(*WORKERS))
    (trial,) = found.trials
    assert (trial.outcome, bench.names_on) == ("skipped", [])
    assert "epochs of" in trial.why
    assert "autobrrr tune -- COMMAND" in trial.why
    assert bench.now_ns() < 20 * SECOND_NS


def test_epochs_too_long_to_be_confirmed_cost_only_what_goes_by_them() -> None:
    bench = job(1.5, 600, **{"optimizer.fused": Effect(speed=1.3)})
    found = tune(bench, settings=settings(*WORKERS, "optimizer.fused"))
    assert found.kept == bench.names_on == ["optimizer.fused"]
    assert found.speedup == pytest.approx(1.3, rel=0.1)
    assert found.interval is not None
    assert [each.why.partition(":")[0] for each in found.reverted] == ["not confirmed"]
