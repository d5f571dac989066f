"""Which candidate comes next on a running job, and that what goes off by itself takes no other with it."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from autobrrr.records import TuneProgress, from_registry
from autobrrr.tuner.arm_switch import ArmSwitch
from autobrrr.tuner.comparison import undo_losses
from autobrrr.tuner.live_search import tune
from autobrrr.tuner.tuning_budget import TuneSettings
from autobrrr.tuner.tuning_study import TuningStudy
from support.simulated.tuner import Effect, SimulatedJob

FUSED, FREEZE = from_registry("optimizer.fused"), from_registry("gc.freeze")
ONE = from_registry("threads.intra_op", {"threads": 1})


def asked(study: TuningStudy) -> list[str]:
    """Ask for all."""
    order = []
    while (one := study.ask()) is not None:
        order.append(one.label)
        study.tell(0.1)
    return order


def test_candidates_come_as_they_are_listed() -> None:
    listed = [FREEZE, msgspec.structs.replace(FUSED, expected=1.2), ONE]
    study = TuningStudy(listed)
    assert study.waiting == 3
    assert asked(study) == ["gc.freeze", "optimizer.fused", "threads.intra_op(threads=1)"]
    assert study.waiting == 0
    assert asked(TuningStudy([])) == []


def test_who_is_to_come_again_is_asked_once_more() -> None:
    study = TuningStudy([FUSED])
    assert asked(study) == ["optimizer.fused"]
    study.again(FUSED)
    assert asked(study) == ["optimizer.fused"]


def test_optuna_comes_with_the_first_study() -> None:
    code = (
        "import sys; from autobrrr.tuner import live_search; from autobrrr.sidecar import daemon;"
        "assert 'optuna' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


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
