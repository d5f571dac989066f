"""A tuning that begins while a measurement is under way: the first switch waits for it, the others do not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from autobrrr.tuner.job_under_test import SwitchedOn
from autobrrr.tuner.live_search import tune
from autobrrr.tuner.tuning_budget import TuneSettings
from support.simulated.tuner import Effect, SimulatedJob

SECOND_NS = 1_000_000_000
WAITED_NS = 12 * SECOND_NS  # seen: a batch probe on a busy machine
REMEDIES = ("optimizer.fused", "optimizer.foreach", "gc.freeze")


class Probed(SimulatedJob):
    measuring = True

    def apply(self, remedy: str, options: Mapping[str, object]) -> SwitchedOn:
        if self.measuring:
            self.measuring = False
            self._pass(WAITED_NS)
        return super().apply(remedy, options)


@pytest.mark.integration  # a long simulation
@pytest.mark.parametrize("step_ns", [5e6, 20e6, 70e6])
def test_a_wait_for_a_measurement_is_not_the_price_of_a_switch(step_ns: float) -> None:
    job = Probed(effects={"optimizer.fused": Effect(speed=1.3)}, base_ns=step_ns)
    found = tune(job, settings=TuneSettings(budget_ns=50 * SECOND_NS, only=REMEDIES))
    assert found.kept == ["optimizer.fused"]
    assert all("of the budget is left" not in trial.why for trial in found.trials)
