"""After a tuning: notices when what was kept no longer pays, and when to look closer.

In: recent step durations and a clock. Out: a suspicion, which costs nothing. Whether it is true is
then found out by a short comparison (`tuner.guard`); jobs also become slower by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autobrrr.diagnosis.measurements import Durations
from autobrrr.records import NoClaim, Reverted, Tuning

SECOND_NS = 1_000_000_000
FEWEST_STEPS = 32
RECENT_STEPS = 256
FIRST_NS = 10 * SECOND_NS
LONGEST_NS = 1800 * SECOND_NS
NEVER_NS = 1 << 62  # no gain is claimed that could go: the loss alone is watched
PATIENCE = 2.0  # each comparison that changed nothing makes the next wait so much longer


@dataclass(slots=True)
class PostTuningWatch:
    """Watches over one tuning's result.

    Attributes:
        baseline_ns, best_ns: Step with all of it off and on, as last compared.
        loss_was_finite: When the watch began; else a loss that is not finite is the job's own.
    """

    baseline_ns: float
    best_ns: float
    since_ns: int
    pause_ns: int = FIRST_NS
    loss_was_finite: bool = True

    def due(self, now_ns: int) -> bool:
        """Whether it is time to look again."""
        return now_ns - self.since_ns >= self.pause_ns

    def suspects(self, step_ns: Durations) -> bool:
        """True where more than half of the gain has gone."""
        if len(step_ns) < FEWEST_STEPS:
            return False
        return float(np.median(step_ns[-RECENT_STEPS:])) > math.sqrt(self.baseline_ns * self.best_ns)

    def looked(self, undid: Sequence[Reverted], step_ns: Durations, now_ns: int) -> PostTuningWatch:
        """The watch that goes on after a comparison.

        What still pays in a job that became slower by itself is measured against its new pace; of what is
        left when something went off no figure is known, and the loss alone is watched.
        """
        if undid:
            return replace(self, pause_ns=NEVER_NS)
        now = float(np.median(step_ns[-RECENT_STEPS:])) if len(step_ns) else self.best_ns
        slower = now / self.best_ns
        return PostTuningWatch(
            baseline_ns=self.baseline_ns * slower,
            best_ns=self.best_ns * slower,
            since_ns=now_ns,
            pause_ns=min(LONGEST_NS, int(PATIENCE * self.pause_ns)),
            loss_was_finite=self.loss_was_finite,
        )


def watch_over(result: Tuning, now_ns: int, *, loss_lost: bool) -> PostTuningWatch | None:
    """A watch over what a tuning has kept; None where it kept nothing that was measured."""
    claimed = result.speedup > 1
    if not result.kept or not result.baseline or not result.best:
        return None
    if not claimed and result.no_claim is not NoClaim.CROWDED:
        return None
    return PostTuningWatch(
        baseline_ns=result.baseline,
        best_ns=result.best,
        since_ns=now_ns,
        pause_ns=FIRST_NS if claimed else NEVER_NS,
        loss_was_finite=not loss_lost,
    )
