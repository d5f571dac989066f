"""Signal `host_lead`: how often the host came to a step's end while the device was still in an earlier step.

Asked of the device's own events, so no clock is read. A host that is a whole step ahead can't be what the
device waits for. The other way round is no proof: where a step holds more launches than a queue, or reads
the loss, a host is never so far ahead.
"""

from __future__ import annotations

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.robust_stats import of_one
from autobrrr.diagnosis.signal_reading import Reading, abstention
from autobrrr.records import Regime

NAME = "host_lead"
UNIT = "share of steps"
ALWAYS = 0.9


def host_lead(measured: Measurements) -> Reading:
    """Against all that is the host's doing, where the host is ahead nearly always."""
    steps = len(measured.ahead)
    if not steps:
        return abstention(NAME, UNIT, "no step was stamped by a device that works asynchronously")
    share = float(measured.ahead.mean())
    if steps < thresholds.SAMPLED_STEPS:
        return abstention(NAME, UNIT, f"{steps} of {thresholds.SAMPLED_STEPS} stamped steps", share)
    against: tuple[Regime, ...] = ("overhead", "input", "host") if share >= ALWAYS else ()
    return Reading(
        signal=NAME,
        value=share,
        unit=UNIT,
        note=f"the host was a step or more ahead of the device in {of_one(share)} of {steps} steps",
        against=against,
    )
