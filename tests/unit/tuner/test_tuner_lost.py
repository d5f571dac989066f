"""What goes off by itself takes no other remedy with it."""

from __future__ import annotations

import pytest

from autobrrr.records import TuneProgress, from_registry
from autobrrr.tuner.arm_switch import ArmSwitch
from autobrrr.tuner.comparison import undo_losses
from autobrrr.tuner.live_search import tune
from autobrrr.tuner.tuning_budget import TuneSettings
from support.simulated.tuner import Effect, SimulatedJob

SECOND_NS = 1_000_000_000


@pytest.mark.integration  # a long simulation
@pytest.mark.parametrize("stage", ["trial", "final"])
def test_what_goes_off_by_itself_takes_nothing_else_with_it(stage: str) -> None:
    job = SimulatedJob(effects={"optimizer.fused": Effect(speed=1.3), "gc.freeze": Effect(speed=1.2)})

    def told(now: TuneProgress) -> None:
        due = now.stage == stage and now.pairs == 3 and now.remedy != "optimizer.fused"
        if due and not job.lost() and "optimizer.fused" in job.names_on:
            job.lose("optimizer.fused")

    only = TuneSettings(budget_ns=50 * SECOND_NS, only=("optimizer.fused", "gc.freeze"))
    found = tune(job, settings=only, on_progress=told)
    assert job.lost()
    assert (found.kept, job.names_on) == (["gc.freeze"], ["gc.freeze"])
    assert found.interval is not None
    assert found.interval[0] > 1
    assert [each.remedy for each in found.guard_undid] == ["optimizer.fused"]


@pytest.mark.parametrize("after", [20, 100, 250])
def test_what_goes_off_by_itself_while_the_guard_compares_stays_off(after: int) -> None:
    class GoesOff(SimulatedJob):
        def _lose(self) -> None:
            super()._lose()
            if self._count > after:
                self.lose("optimizer.fused")

    job = GoesOff(effects={"optimizer.fused": Effect(speed=1.2)})
    board = ArmSwitch(job)
    board.go((from_registry("optimizer.fused"), from_registry("gc.freeze")))
    assert [each.remedy for each in undo_losses(job, board, 1e6)] == ["optimizer.fused"]
    assert job.names_on == ["gc.freeze"]
