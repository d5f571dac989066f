"""Signal `collective_wait`: what collectives take beyond the backward that hides them."""

from __future__ import annotations

from statistics import fmean

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.exposed_waits import exposed_share
from autobrrr.diagnosis.robust_stats import duration, median, of_one, positive
from autobrrr.diagnosis.signal_reading import Reading, abstention, weighed
from autobrrr.records import CollectiveWaits

NAME = "collective_wait"
UNIT = "share of step"


def collective_wait(measured: Measurements) -> Reading:
    """Speaks for communication at half of the step, against it at a quarter."""
    waits = measured.collectives
    if waits is None:
        return abstention(NAME, UNIT, "no collectives were timed: one process, or not yet")
    if waits.status != "ok":
        return abstention(NAME, UNIT, waits.why or "it gave no reason")
    share = exposed_share(measured)
    if share is None:
        return abstention(NAME, UNIT, f"{len(waits.step_ns)} of {thresholds.COLLECTIVE_STEPS} steps timed")
    # Where only some of the steps communicate, the median may be one that does not.
    on_average = fmean(waits.exposed_ns or [0]) / (positive(fmean(waits.step_ns or [0])) or 1.0)
    excludes = on_average <= thresholds.EXCLUDED_AT and max(waits.reduced, default=0) <= 1
    note, firm = f"{_told(waits)}, {of_one(share)} of the step", share >= thresholds.NAMED_AT + 0.05
    return weighed(NAME, UNIT, "communication", share, note, firm=firm, excludes=excludes)


def _told(waits: CollectiveWaits) -> str:
    called_ns, exposed_ns = median(waits.called_ns) or 0.0, median(waits.exposed_ns) or 0.0
    if not called_ns:
        return f"collectives take {duration(exposed_ns)} beyond the backward"
    if called_ns >= 0.9 * exposed_ns:
        return f"collectives that the loop calls take {duration(exposed_ns)}"
    in_calls = f"{duration(called_ns)} of it in the loop's calls"
    return f"collectives take {duration(exposed_ns)} beyond the backward, {in_calls}"
