"""A job that pauses for long while something is tried or switched: the pause is not laid to the remedy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from autobrrr.agent.wire import ring_layout
from autobrrr.tuner.arm_switch import ArmSwitch
from autobrrr.tuner.comparison import undo_losses
from autobrrr.tuner.job_under_test import Steps
from autobrrr.tuner.live_search import tune
from autobrrr.tuner.tuning_budget import TuneSettings
from support.simulated.tuner import Effect, SimulatedJob, on_already

SECOND_NS = 1_000_000_000
FUSED = "optimizer.fused"
APART_STEPS = 100


@dataclass
class Evaluates(SimulatedJob):
    """For 12 s no step ends, once for each letter: while nothing is on (A), or while something is (B)."""

    pauses: str = ""
    flagged: bool = False
    evaluation_every: int = 0
    checkpoint_every: int = 0
    slow_share: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._began_ns: int | None = None
        self._after = 50

    def steps(self, first_seq: int, count: int, timeout_ns: int) -> Steps:
        deadline_ns = self._clock_ns + timeout_ns
        due = self.pauses[:1] == ("B" if self.names_on else "A") and self._count >= self._after
        if self._began_ns is None and due and count:
            if not self.names_on:  # not in the step of the switch
                super().steps(first_seq, 4, timeout_ns)
            self._began_ns = self._clock_ns
        if self._began_ns is not None:
            if deadline_ns < self._began_ns + 12 * SECOND_NS:
                self._clock_ns = deadline_ns
                return self._records[first_seq : self._count].copy()
            self.end_pause()
        return super().steps(first_seq, count, max(0, deadline_ns - self._clock_ns))

    def end_pause(self) -> None:
        if self._began_ns is None:
            return
        self._clock_ns, self._stall_ns, self._began_ns = self._began_ns, 12 * SECOND_NS, None
        self._run(1)
        self._records[self._count - 1]["flags"] |= ring_layout.EVALUATION if self.flagged else 0
        self.pauses, self._after = self.pauses[1:], self._count + APART_STEPS

    def apply(self, remedy: str, options: Mapping[str, object]) -> tuple[int, int]:
        self.end_pause()
        return super().apply(remedy, options)

    def undo(self, token: int) -> int:
        self.end_pause()
        return super().undo(token)


@pytest.mark.integration  # a long simulation
@pytest.mark.parametrize(
    ("pauses", "flagged"), [("B", False), ("BBB", True), ("ABB", False), ("BABB", False)]
)
def test_pauses_of_the_job_itself_are_not_laid_to_the_remedy(pauses: str, *, flagged: bool) -> None:
    job = Evaluates(effects={FUSED: Effect(speed=1.05)}, pauses=pauses, flagged=flagged)
    found = tune(job, settings=TuneSettings(budget_ns=200 * SECOND_NS, only=(FUSED,)))
    assert job.pauses == ""
    assert found.kept == [FUSED], found.trials


def test_a_remedy_under_which_no_step_ends_twice_is_harmful() -> None:
    job = Evaluates(effects={FUSED: Effect(speed=1.05)}, pauses="BB")
    found = tune(job, settings=TuneSettings(budget_ns=200 * SECOND_NS, only=(FUSED,)))
    assert found.kept == []
    assert found.trials[0].why.startswith("only 0 steps ended in 1")
    assert found.trials[0].why.endswith("s with it, 2 times")


def test_an_evaluation_while_the_guard_compares_undoes_nothing() -> None:
    job = Evaluates(effects={FUSED: Effect(speed=1.3)}, pauses="B")
    board = ArmSwitch(job, [on_already(job, FUSED)])
    assert undo_losses(job, board, 1e6, budget_ns=60 * SECOND_NS) == []
    assert (job.pauses, job.names_on) == ("", [FUSED])


class FirstEvaluates(SimulatedJob):
    """Ends one step at a time; the second holds an evaluation of 40 s."""

    def _run(self, count: int) -> None:
        self._stall_ns += 40 * SECOND_NS if self._count == 1 else 0
        super()._run(1)


def test_of_very_few_first_steps_the_shortest_sizes_the_blocks() -> None:
    job = FirstEvaluates(base_ns=2e9, noise=0.01, drift=0.0, effects={FUSED: Effect(speed=2.0)})
    found = tune(job, settings=TuneSettings(budget_ns=300 * SECOND_NS, only=(FUSED,)))
    assert found.trials[0].outcome != "skipped", found.trials[0].why


class AgreesFirst(SimulatedJob):
    """Ten steps pass before a change of remedies, as where many ranks agree on its step."""

    def apply(self, remedy: str, options: Mapping[str, object]) -> tuple[int, int]:
        self._run(10)
        return super().apply(remedy, options)

    def undo(self, token: int) -> int:
        self._run(10)
        return super().undo(token)


class Probed(SimulatedJob):
    """A measurement is under way when the tuning begins: the first switch waits for it, the others do not."""

    measuring = True

    def apply(self, remedy: str, options: Mapping[str, object]) -> tuple[int, int]:
        if self.measuring:
            self.measuring = False
            self._pass(12 * SECOND_NS)  # seen: a batch probe on a busy machine
        return super().apply(remedy, options)


@pytest.mark.integration  # a long simulation
@pytest.mark.parametrize("step_ns", [5e6, 20e6, 70e6])
def test_a_wait_for_a_measurement_is_not_the_price_of_a_switch(step_ns: float) -> None:
    job = Probed(effects={FUSED: Effect(speed=1.3)}, base_ns=step_ns)
    only = (FUSED, "optimizer.foreach", "gc.freeze")
    found = tune(job, settings=TuneSettings(budget_ns=50 * SECOND_NS, only=only))
    assert found.kept == [FUSED]
    assert all("of the budget is left" not in trial.why for trial in found.trials)


def test_where_a_switch_takes_long_most_of_the_time_is_still_measured() -> None:
    job = AgreesFirst(base_ns=20e6, effects={FUSED: Effect(speed=1.1)})
    only = (FUSED, "optimizer.foreach", "gc.freeze", "threads.intra_op")
    found = tune(job, settings=TuneSettings(budget_ns=30 * SECOND_NS, only=only))
    assert FUSED in found.kept, found.trials
    assert found.trials[0].steps * 20e6 > 0.4 * found.trials[0].duration_ns
