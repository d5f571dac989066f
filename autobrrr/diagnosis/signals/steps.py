"""What names nothing by itself: long steps, garbage.

Signal `uneven_steps`: the part of the time that goes into a few much longer steps. It names nothing.

An evaluation, a checkpoint or a log line now and then makes some steps longer than the rest, and so do
rollouts, which are part of the loop. Medians and traced steps speak of the usual step; this is what they
leave out.

Signal `garbage`: the part of the step that Python's garbage collector takes. It names nothing.

Its time lies wherever a collection happens to begin, so it is already part of overhead or host.
"""

from __future__ import annotations

import numpy as np

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.shares import garbage_share
from autobrrr.diagnosis.robust_stats import duration, of_one, positive, unit_share
from autobrrr.diagnosis.signal_reading import STEP, Reading, abstention
from autobrrr.records import FrameSamples

LEAST_STEPS = 20
LONGER = 2.5  # times the median: such a step is of another kind
FEW = 0.25  # of the steps: more of them are no exception


def _stood(frames: FrameSamples | None) -> str:
    """Where the thread was found in long steps, once they had lasted longer than the usual ones."""
    places = [place for place in (frames.places if frames else []) if place.long_ns > 0]
    looks = sum(place.samples for place in places)
    if looks < thresholds.LONG_LOOKS:
        return ""
    top = max(places, key=lambda place: place.long_ns)
    share = top.long_ns / sum(place.long_ns for place in places)
    does = f", {top.does}" if top.does else ""
    return f"{of_one(share)} of the looks into them at {top.where}{does}"


def uneven_steps(measured: Measurements) -> Reading:
    """Says how much of the time the long steps take beyond what usual ones would have."""
    steps_ns = measured.step_ns
    if len(steps_ns) < LEAST_STEPS:
        return abstention("uneven_steps", "share of time", f"{len(steps_ns)} of {LEAST_STEPS} steps")
    usual_ns = positive(float(np.median(steps_ns)))
    if usual_ns is None:
        return abstention("uneven_steps", "share of time", "the steps have no usable values")
    long = steps_ns.astype(np.float64)[steps_ns > LONGER * usual_ns]
    whole_ns = positive(float(steps_ns.astype(np.float64).sum()))
    share = None if whole_ns is None else unit_share(float((long - usual_ns).sum()) / whole_ns)
    if share is None:
        return abstention("uneven_steps", "share of time", "the steps have no usable values")
    if len(long) == 0 or len(long) > FEW * len(steps_ns):
        rest = "steps without an evaluation" if measured.evaluated else "steps"
        one_kind = f"{rest} are of one kind, {duration(usual_ns)} each"
        note = one_kind if len(long) == 0 else "steps have no usual length"
        return Reading(
            signal="uneven_steps", value=0.0 if len(long) == 0 else share, unit="share of time", note=note
        )
    what = _stood(measured.frames) or "an evaluation, a checkpoint, a log line?"
    return Reading(
        signal="uneven_steps",
        value=share,
        unit="share of time",
        note=(
            f"{len(long)} of {len(steps_ns)} steps take {duration(float(np.median(long)))} instead of "
            f"{duration(usual_ns)}: {of_one(share)} of the time ({what})"
        ),
    )


def garbage(measured: Measurements) -> Reading:
    """Says how much of the sampled steps goes into collections."""
    share, sampled = garbage_share(measured), measured.phases
    if share is None or sampled is None or sampled.garbage_ns is None:
        return abstention("garbage", STEP, "collections were not timed")
    return Reading(
        signal="garbage",
        value=share,
        unit=STEP,
        note=f"Python collects garbage for {duration(sampled.garbage_ns)} a step, {of_one(share)} of it",
    )
