"""How long a study may search: what ablation and confirmation will take is kept back from its time.

In: the time that it may take, what its trials took. Out: whether there is time for another.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

SEARCH_SHARE = 0.7  # of the time, at most: the rest belongs to ablation and confirmation
CLOSING_STARTS = 3


@dataclass(slots=True, kw_only=True)
class StudyBudget:
    """The time of one study, from its making."""

    whole_ns: int
    clock_ns: Callable[[], int] = time.perf_counter_ns
    _began_ns: int = field(init=False)
    _took_ns: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began_ns = self.clock_ns()

    @property
    def spent_ns(self) -> int:
        return self.clock_ns() - self._began_ns

    def enter(self, took_ns: int) -> None:
        """A trial, from its start until it was compared, took so long."""
        self._took_ns.append(took_ns)

    def has_time_to_try(self) -> bool:
        """Time for another trial of the search; the first always has it."""
        kept_back_ns = max((1 - SEARCH_SHARE) * self.whole_ns, self._closing_ns)
        return not self._took_ns or self.spent_ns + self._usual_ns <= self.whole_ns - kept_back_ns

    def enough_ns(self, trials: int) -> int:
        """What the whole would have to be for so many more trials, at what the past ones took."""
        searched_ns = self.spent_ns + trials * self._usual_ns
        return int(max(searched_ns / SEARCH_SHARE, searched_ns + self._closing_ns))

    def has_time_to_ablate(self) -> bool:
        """Time to see whether one part of the winner helps."""
        return self.spent_ns + self._usual_ns <= self.whole_ns - self._closing_ns

    @property
    def _usual_ns(self) -> float:
        return statistics.median(self._took_ns) if self._took_ns else 0.0

    @property
    def _closing_ns(self) -> float:
        return CLOSING_STARTS * self._usual_ns
