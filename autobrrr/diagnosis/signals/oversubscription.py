"""Signal `oversubscription`: more threads of the job's own than CPUs, which keep each other waiting.

A thread that waits for a CPU waits for whoever has it. What others ran in that time bounds what they can
be blamed for; the rest of the training thread's wait is owed to the other threads of its own process.
"""

from __future__ import annotations

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.cpu_delay import is_oversubscribed, own_waits
from autobrrr.diagnosis.robust_stats import median, of_one, positive
from autobrrr.diagnosis.signal_reading import Reading, abstention
from autobrrr.records import Regime

NAME = "oversubscription"
UNIT = "share of wall time"


def oversubscription(measured: Measurements) -> Reading:
    """Speaks for overhead where the job has more threads than CPUs, and waits for them."""
    threads = None if measured.facts is None else measured.facts.threads
    cores = positive(measured.cores)
    if not threads or cores is None:
        return abstention(NAME, UNIT, "the job's threads or its CPUs are not known")
    waits = own_waits(measured)
    share = median(waits)
    if share is None:
        return abstention(NAME, UNIT, "how long the training thread waits for its own threads is not known")
    says: Regime | None = "overhead" if is_oversubscribed(measured) else None
    on = f"{threads} thread{'s' if threads > 1 else ''} on {cores:.0f} CPU{'s' if cores > 1 else ''}"
    return Reading(
        signal=NAME,
        value=share,
        unit=UNIT,
        note=f"{on}: the training thread waits {of_one(share)} of the time for one that its own threads hold",
        says=says,
        firm=share >= thresholds.BUSY_AT + 0.05 and len(waits) >= thresholds.OWN_DELAY_SAMPLES,
    )
