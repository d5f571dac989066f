"""Looks closer where what was kept may no longer pay, and undoes it where it has turned bad.

A slow stretch alone proves nothing, jobs change by themselves. So a suspicion (`PostTuningWatch`) only starts
a short comparison of all-on against all-off; that decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from autobrrr.records import Reverted
from autobrrr.tuner.arm_switch import Arm, ArmSwitch
from autobrrr.tuner.comparison import Comparing, compare
from autobrrr.tuner.confidence_sequence import Interval
from autobrrr.tuner.job_under_test import JobUnderTest, NotApplied, RemedyLost
from autobrrr.tuner.stop_rules import Decision, PairStanding, times_as_fast

CHECK_NS = 10_000_000_000


@dataclass(slots=True)
class GainGuard:
    """Guards the remedies of one switchboard.

    Args:
        step_ns: Mean step with all of them off, from the closing run of the tuning.
        alpha: Of one check.
    """

    bench: JobUnderTest
    board: ArmSwitch
    step_ns: float
    alpha: float = 0.02

    def check(self, budget_ns: int = CHECK_NS) -> list[Reverted]:
        """Compare all-on with all-off now; undo everything where on is the slower. Blocks meanwhile.

        Returns:
            What was undone.
        """
        on = tuple(applied.choice for applied in self.board.active)
        if not on:
            return []
        try:
            return self._compare(on, budget_ns)
        except NotApplied as refused:
            return self._put_back(on, str(refused))

    def _compare(self, on: Arm, budget_ns: int) -> list[Reverted]:
        found = compare(
            self.bench,
            self.board,
            Comparing(
                without=(),
                with_it=on,
                rule=still_pays,
                alpha=self.alpha,
                deadline_ns=self.bench.now_ns() + budget_ns,
                step_ns=self.step_ns,
            ),
        )
        if found.decision not in ("hopeless", "harmful"):
            return self._hold(on)
        self._hold(())
        return [Reverted(remedy=choice.remedy, why=f"the guard reverted it: {found.why}") for choice in on]

    def _hold(self, arm: Arm) -> list[Reverted]:
        """Bring the job under an arm, less what has gone off by itself: it stays off, and is returned."""
        while True:
            on = {applied.choice for applied in self.board.active}
            off = [each for each in arm if each in self.board.lost and each not in on]
            try:
                self.board.go(tuple(each for each in arm if each not in off))
            except RemedyLost:
                if len(self.board.active) == len(on):  # not by itself: it can't be switched
                    raise
                continue
            return [Reverted(remedy=each.remedy, why=self.board.lost[each]) for each in off]

    def _put_back(self, on: Arm, why: str) -> list[Reverted]:
        """After a refusal: the others go on again; what does not is reported."""
        try:
            self.board.go(on)
        except NotApplied as refused:
            why = str(refused)
        present = {applied.choice for applied in self.board.active}
        missing = [choice for choice in on if choice not in present]
        return [Reverted(remedy=each.remedy, why=f"could not be applied again: {why}") for each in missing]


def still_pays(now: PairStanding) -> tuple[Decision, str] | None:
    """Ends as soon as the sign is proven."""
    interval: Interval | None = now.typical
    if interval is None or now.pairs < 6:
        return None
    if interval.low > 0:
        return "better", f"still faster: {times_as_fast(interval)}"
    if interval.high < 0:
        return "hopeless", f"slower by now: {times_as_fast(interval)}"
    return None
