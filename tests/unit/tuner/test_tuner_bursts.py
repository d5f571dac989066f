"""Long steps that come in a row are not laid to a remedy."""

from __future__ import annotations

import numpy as np
import pytest

from autobrrr.tuner.live_search import tune
from autobrrr.tuner.tuning_budget import TuneSettings
from support.simulated.tuner import Effect, SimulatedJob

SECOND_NS = 1_000_000_000


class Bursts(SimulatedJob):
    """Whatever is on, some 8 steps in a row now and then take six times as long: another program's turn."""

    left = 0

    def _run(self, count: int) -> None:
        first = self._count
        super()._run(count)
        part = self._records[first : self._count]
        took = (part["end_ns"] - part["start_ns"]).astype(float)
        for at in range(len(part)):
            if not self.left and self._random.random() < 1 / 600:
                self.left = int(self._random.integers(4, 16))
            if self.left:
                took[at] *= 6
                self.left -= 1
        ends = int(part["start_ns"][0]) + np.cumsum(took.astype(np.int64))
        part["end_ns"], part["start_ns"] = ends, ends - took.astype(np.int64)
        self._clock_ns = int(ends[-1])


@pytest.mark.nightly
@pytest.mark.integration  # long simulations
def test_long_steps_that_come_in_a_row_are_not_laid_to_the_remedy() -> None:
    said = []
    for seed in range(20):
        job = Bursts(seed=seed, effects={"optimizer.fused": Effect(speed=1.1)})
        found = tune(job, settings=TuneSettings(budget_ns=60 * SECOND_NS, only=("optimizer.fused",)))
        said.append(found.trials[0].why)
    assert not [why for why in said if "long steps" in why]
