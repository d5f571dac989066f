"""Another process compiles for a candidate while others are tried; training pauses for what is left then."""

from __future__ import annotations

from autobrrr.tuner.candidate_space import Candidate
from autobrrr.tuner.tuning_budget import TuningBudget


class Preparation:
    """It ends early where training loses more by it than it may, or too little time would be left.

    Args:
        step_ns: What a step takes without that process.
        speed: What is kept surely gains, as a factor.
        deadline_ns: When the trial must be through.

    Raises:
        NotApplied, RemedyLost: as `JobUnderTest.prepare` does.
    """

    def __init__(
        self, budget: TuningBudget, candidate: Candidate, *, step_ns: float, speed: float, deadline_ns: int
    ) -> None:
        choice = candidate.choice
        self.candidate = candidate
        self._budget, self._bench, self._step_ns = budget, budget.bench, step_ns
        self._end_ns = deadline_ns - budget.needed_ns(choice, step_ns)
        self._most_ns = max(budget.least_ns, budget.may_lose_ns(speed, budget.price_ns(choice)))
        self._began_ns, self._first, self._entered_ns = (
            self._bench.now_ns(),
            self._bench.next_seq(),
            budget.entered_ns,
        )
        self.compiling = self._bench.prepare(choice.remedy, choice.settings)

    def ended(self) -> bool:
        """Whether it has ended; it is made to end where it must."""
        over = self._bench.now_ns() > self._end_ns or self.lost_ns > self._most_ns
        if (over or self._bench.cancelled()) and not self.compiling.done():
            self.compiling.stop()
        return self.compiling.done()

    @property
    def lost_ns(self) -> float:
        """What training has lost so far, less what comparisons took meanwhile."""
        steps = self._bench.next_seq() - self._first
        elsewhere_ns = self._budget.entered_ns - self._entered_ns
        return max(0.0, self._bench.now_ns() - self._began_ns - steps * self._step_ns - elsewhere_ns)
