"""What a tuning may spend: time up to a deadline, and the price of switching a remedy on.

In: settings, a clock. Out: deadlines, prices, and why a candidate is not tried.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from autobrrr.injected.remedies.families import REGISTRY
from autobrrr.records.gain_words import interval_words
from autobrrr.tuner.ab_blocks import shortest_pairs_ns
from autobrrr.tuner.arm_switch import ArmSwitch
from autobrrr.tuner.candidate_space import Candidate, Choice
from autobrrr.tuner.job_under_test import JobUnderTest
from autobrrr.tuner.stop_rules import FEWEST_PAIRS
from autobrrr.tuner.tune_settings import CLOSING_SHARE, SEARCH_SHARE, TuneSettings

LIKELY_BEST = 3.0  # the largest gain that is likely, where none is predicted
DEAR = 0.05  # of the user's time, for one pause: from here on a remedy must be likely to gain
WORTH_A_PAUSE = 1.05  # the least predicted gain


@dataclass(slots=True)
class TuningBudget:
    """Begins when it is made."""

    bench: JobUnderTest
    board: ArmSwitch
    settings: TuneSettings
    switch_ns: float = 0.0  # what a change of remedies takes, once it was seen
    began_ns: int = field(init=False)

    def __post_init__(self) -> None:
        self.began_ns = self.bench.now_ns()

    @property
    def elapsed_ns(self) -> int:
        return self.bench.now_ns() - self.began_ns

    def deadline(self, share: float) -> int:
        """When so much of the budget is spent, by the bench's clock."""
        return self.began_ns + int(share * self.settings.budget_ns)

    def search_deadline(self, step_ns: float, *, kept: bool) -> int:
        """When trials end: the rest confirms what is kept; with nothing kept, as little as that may take."""
        if kept:
            return self.deadline(SEARCH_SHARE)
        return min(self.deadline(1.0), self.deadline(CLOSING_SHARE) - self.shortest_ns(step_ns))

    def price_ns(self, choice: Choice) -> int:
        """What switching it on for the first time is expected to cost."""
        return 0 if choice in self.board.warm else int(1e9 * REGISTRY[choice.remedy].price_s)

    def needed_ns(self, choice: Choice, step_ns: float) -> int:
        """The shortest time in which a trial can end with an answer."""
        return self.shortest_ns(step_ns) + self.price_ns(choice)

    def shortest_ns(self, step_ns: float) -> int:
        """The same for one that costs nothing to switch on first."""
        return shortest_pairs_ns(step_ns, FEWEST_PAIRS, self.switch_ns)

    def refusal(self, candidate: Candidate, step_ns: float, deadline_ns: int) -> str | None:
        """Why a candidate is not tried: it may not pay for its pause, or its trial no longer fits."""
        remedy, price_ns = candidate.choice.remedy, self.price_ns(candidate.choice)
        pause = f"needs a {price_ns / 1e9:.0f} s pause"
        whole_ns = self.settings.budget_ns + self.settings.spent_ns
        if price_ns > DEAR * whole_ns and remedy not in self.settings.only and not _likely(candidate):
            interval = candidate.interval and f" {interval_words(candidate.interval)}"
            foreseen = "may gain nothing" if candidate.predicted else "no gain is predicted"
            return f"{pause} and {foreseen}{interval or ''}; --only {remedy} tries it"
        saved = 1 - 1 / max(candidate.predicted or LIKELY_BEST, 1.0)
        if price_ns > saved * self.settings.horizon_ns:
            return f"{pause}, more than it can save within {self.settings.horizon_ns / 1e9:.0f} s (--horizon)"
        needed_ns, left_ns = self.needed_ns(candidate.choice, step_ns), deadline_ns - self.bench.now_ns()
        if needed_ns <= left_ns:
            return None
        if price_ns:
            return f"{pause}; rerun with --for {self.enough_s([candidate], step_ns)}s"
        pairs = f"{FEWEST_PAIRS} A/B pairs take {needed_ns / 1e9:.1f} s"
        return f"{pairs}, and {max(0, left_ns) / 1e9:.1f} s are left for trials"

    def enough_s(self, untried: Sequence[Candidate], step_ns: float) -> int:
        """The budget within which these could be tried too."""
        needed_ns = sum(3 * self.needed_ns(each.choice, step_ns) for each in untried)
        whole_ns = (self.elapsed_ns + needed_ns) / SEARCH_SHARE + self.settings.spent_ns
        return math.ceil(whole_ns / 1e9)


def _likely(candidate: Candidate) -> bool:
    """Whether a gain is predicted, and all of the prediction's interval is one."""
    if candidate.predicted is None or candidate.predicted < WORTH_A_PAUSE:
        return False
    return candidate.interval is None or candidate.interval[0] > 1
