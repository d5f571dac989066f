"""Signal `garbage`: the part of the step that Python's garbage collector takes. It names nothing.

Its time lies wherever a collection happens to begin, so it is already part of overhead or host.
"""

from __future__ import annotations

from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.shares import garbage_share
from autobrrr.diagnosis.robust_stats import duration, of_one
from autobrrr.diagnosis.signal_reading import Reading, abstention

NAME = "garbage"
UNIT = "share of step"


def garbage(measured: Measurements) -> Reading:
    """Says how much of the sampled steps goes into collections."""
    share, sampled = garbage_share(measured), measured.phases
    if share is None or sampled is None or sampled.garbage_ns is None:
        return abstention(NAME, UNIT, "collections were not timed")
    return Reading(
        signal=NAME,
        value=share,
        unit=UNIT,
        note=f"Python collects garbage for {duration(sampled.garbage_ns)} a step, {of_one(share)} of it",
    )
