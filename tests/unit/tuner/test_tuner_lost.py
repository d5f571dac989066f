"""What goes off by itself takes no other remedy with it."""

from __future__ import annotations

import pytest

from autobrrr.records import TuneProgress
from autobrrr.tuner.live_search import tune
from autobrrr.tuner.tune_settings import TuneSettings
from support.simulated.tuner import Effect, SimulatedJob

SECOND_NS = 1_000_000_000


@pytest.mark.parametrize("stage", ["trial", "final"])
def test_what_goes_off_by_itself_takes_nothing_else_with_it(stage: str) -> None:
    job = SimulatedJob(effects={"optimizer.fused": Effect(speed=1.3), "gc.freeze": Effect(speed=1.2)})

    def told(now: TuneProgress) -> None:
        due = now.stage == stage and now.pairs == 3 and now.remedy != "optimizer.fused"
        if due and not job.lost() and "optimizer.fused" in job.names_on:
            job.lose("optimizer.fused")

    only = TuneSettings(budget_ns=80 * SECOND_NS, only=("optimizer.fused", "gc.freeze"))
    found = tune(job, settings=only, on_progress=told)
    assert job.lost()
    assert (found.kept, job.names_on) == (["gc.freeze"], ["gc.freeze"])
    assert found.interval is not None
    assert found.interval[0] > 1
    assert [each.remedy for each in found.guard_undid] == ["optimizer.fused"]
