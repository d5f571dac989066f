"""What a tuning writes and claims where something goes wrong just after a remedy was proven."""

from __future__ import annotations

import pytest

from autobrrr.recipe import from_tuning
from autobrrr.records import NoClaim, TuneProgress
from autobrrr.report.pages.tuning_parts import tuning_text
from autobrrr.tuner.job_under_test import NotApplied
from autobrrr.tuner.live_search import tune
from autobrrr.tuner.tuning_budget import TuneSettings
from support.simulated.tuner import Effect, SimulatedJob, verdict

SECOND_NS = 1_000_000_000


@pytest.mark.integration  # a long simulation
@pytest.mark.parametrize("seed", range(4))
def test_what_is_refused_as_soon_as_it_was_proven_is_in_no_recipe(seed: int) -> None:
    class Refuses(SimulatedJob):
        decided = False

        def apply(self, remedy, options):  # type: ignore[no-untyped-def]
            if self.decided and remedy == "optimizer.fused":
                raise NotApplied("the script has fused it itself")
            return super().apply(remedy, options)

    job = Refuses(seed=seed, effects={"gc.freeze": Effect(speed=1.3), "optimizer.fused": Effect(speed=1.3)})

    def told(now: TuneProgress) -> None:
        proven = now.interval is not None and now.interval[0] > 1 and (now.achieved or 1) > 1.011
        job.decided = job.decided or (now.remedy == "optimizer.fused" and now.pairs >= 6 and proven)

    only = TuneSettings(budget_ns=80 * SECOND_NS, only=("optimizer.fused", "gc.freeze"))
    expected = verdict(gc_freeze=1.5, optimizer_fused=1.3)
    found = tune(job, verdict=expected, settings=only, on_progress=told)
    assert [chosen.remedy for chosen in from_tuning(found).remedies] == found.kept == job.names_on
    assert "optimizer.fused" not in found.kept


def test_a_tuning_that_is_stopped_in_its_confirmation_run_claims_nothing_beside_other_programs() -> None:
    class Stopped(SimulatedJob):
        stop = False

        def cancelled(self) -> bool:
            return self.stop

    job = Stopped(effects={"optimizer.fused": Effect(speed=1.2)}, crowded_by="fit.py (pid 7) has a core")

    def told(now: TuneProgress) -> None:
        job.stop = now.stage == "final" and now.pairs >= 10

    settings = TuneSettings(budget_ns=40 * SECOND_NS, only=("optimizer.fused",))
    found = tune(job, settings=settings, on_progress=told)
    assert found.kept == ["optimizer.fused"]
    assert (found.speedup, found.interval, found.no_claim) == (1.0, None, NoClaim.CROWDED)
    assert "stopped by the user" in (found.note or "")
    assert "fit.py" in (found.note or "")


def test_a_trial_tells_the_most_memory_that_the_job_took_with_its_remedy() -> None:
    fused = Effect(speed=1.5, host_bytes=900 << 20)
    found = tune(
        SimulatedJob(effects={"optimizer.fused": fused}),
        settings=TuneSettings(budget_ns=20 * SECOND_NS, only=("optimizer.fused", "optimizer.foreach")),
    )
    peaks = {each.remedy: each.peaks.host_bytes for each in found.trials}
    assert (peaks["optimizer.fused"], peaks["optimizer.foreach"]) == (900 << 20, None)
    assert found.kept == ["optimizer.fused"]
    assert (found.peaks.host_bytes, "900 MB" in tuning_text(found)) == (900 << 20, True)
