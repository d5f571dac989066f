"""Signal `loader_queue`: how often the workers' prefetch queue was empty when looked at.

A count of states, not a clock: independent of the wait that the loop measures. A full queue excludes
nothing: then the workers keep up, and a wait goes into handing batches over.
"""

from __future__ import annotations

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.robust_stats import of_one, unit_share
from autobrrr.diagnosis.signal_reading import Reading, abstention, weighed

NAME = "loader_queue"
UNIT = "share of looks"


def workers_keep_up(measured: Measurements) -> bool:
    """Whether the workers' queue was seen to be seldom empty."""
    reading = loader_queue(measured)
    return not reading.abstained and reading.value is not None and reading.value <= thresholds.EXCLUDED_AT


def loader_queue(measured: Measurements) -> Reading:
    """Speaks for input where the queue is empty half of the time."""
    anatomy, frames = measured.anatomy, measured.frames
    if frames is None:
        return abstention(NAME, UNIT, "the queue was not looked at yet")
    share = unit_share(frames.queue_empty_share)
    if share is None:
        workers = None if anatomy is None else anatomy.loader_workers
        return abstention(NAME, UNIT, "no DataLoader workers" if not workers else "the queue can't be read")
    if frames.samples < thresholds.FRAME_SAMPLES:
        return abstention(NAME, UNIT, f"{frames.samples} of {thresholds.FRAME_SAMPLES} looks", share)
    firm = frames.samples >= thresholds.FRAME_SAMPLES_FIRM and share >= thresholds.NAMED_AT + 0.05
    note = f"prefetch queue empty in {of_one(share)} of {frames.samples} looks"
    return weighed(NAME, UNIT, "input", share, note, firm=firm, excludes=False)
