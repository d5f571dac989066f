"""One rank's step by its timed collectives: what it waits for them, and its own work.

In: steps in which collectives were timed. Out: their medians.
"""

from __future__ import annotations

from statistics import median

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.robust_stats import interquartile
from autobrrr.records import CollectiveWaits, RankTimes

_SIGMA = 1.349  # interquartile range of a normal distribution
_OF_MEDIAN = 1.2533  # standard error of a median over that of a mean


def rank_times(waits: CollectiveWaits | None) -> RankTimes | None:
    """Medians of the timed steps; None where too few were timed."""
    if waits is None or waits.status != "ok" or len(waits.step_ns) < thresholds.COLLECTIVE_STEPS:
        return None
    if len(waits.exposed_ns) != len(waits.step_ns):
        return None
    own_ns = [step - wait for step, wait in zip(waits.step_ns, waits.exposed_ns, strict=True)]
    width = max(interquartile(own_ns) or 0.0, interquartile(waits.exposed_ns) or 0.0)
    return RankTimes(
        steps=len(own_ns),
        step_ns=int(median(waits.step_ns)),
        waits_ns=int(median(waits.exposed_ns)),
        own_ns=int(median(own_ns)),
        error_ns=int(_OF_MEDIAN * width / _SIGMA / len(own_ns) ** 0.5),
    )
