"""Signal `oversubscription`: more threads of the job's own than CPUs, which keep each other waiting.

A thread that waits for a CPU waits for whoever has it. What others ran in that time bounds what they can
be blamed for; the rest of the training thread's wait is owed to the other threads of its own process.
"""

from __future__ import annotations

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.robust_stats import median, of_one, positive, unit_share
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
    looks = [(sample.run_delay_share, sample.foreign_cores) for sample in measured.host]
    if measured.traced is not None:
        looks.append((measured.traced.run_delay_share, measured.traced.foreign_cores))
    waits = [wait for wait in (own_delay(*look) for look in looks) if wait is not None]
    share = median(waits)
    if share is None:
        return abstention(NAME, UNIT, "how long the training thread waits for its own threads is not known")
    says: Regime | None = "overhead" if outnumber(measured) and share >= thresholds.BUSY_AT else None
    on = f"{threads} thread{'s' if threads > 1 else ''} on {cores:.0f} CPU{'s' if cores > 1 else ''}"
    return Reading(
        signal=NAME,
        value=share,
        unit=UNIT,
        note=f"{on}: the training thread waits {of_one(share)} of the time for one that its own threads hold",
        says=says,
        firm=share >= thresholds.BUSY_AT + 0.05 and len(waits) >= thresholds.OWN_DELAY_SAMPLES,
    )


def is_oversubscribed(measured: Measurements) -> bool:
    """Whether the job's threads take the CPUs from each other, and nobody else does."""
    return oversubscription(measured).says == "overhead"


def outnumber(measured: Measurements) -> bool:
    """Whether the job has more threads in an operator than it has CPUs."""
    threads = None if measured.facts is None else measured.facts.threads
    cores = positive(measured.cores)
    return bool(threads) and cores is not None and (threads or 0) > cores


def foreign_delay(delay: float | None, foreign_cores: float | None) -> float | None:
    """The part of a thread's wait for a CPU that others can be blamed for: no more than they ran."""
    share = unit_share(delay)
    if share is None or foreign_cores is None or not foreign_cores >= 0:
        return share
    return min(share, foreign_cores)


def own_delay(delay: float | None, foreign_cores: float | None) -> float | None:
    """The rest of that wait; None where it can't be told apart."""
    share = unit_share(delay)
    if share is None or foreign_cores is None or not foreign_cores >= 0:
        return None
    return max(0.0, share - foreign_cores)
