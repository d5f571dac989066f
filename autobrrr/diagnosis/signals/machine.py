"""CPUs that the job waits for: others have them, or its own threads.

Signal `busy_machine`: how long the training thread, or a worker that it waits for, had no CPU.

Delay that the job's own threads make is left out: it is the job's, and `oversubscription` tells it.
It names nothing: a busy machine lengthens whatever it hits, so verdicts are lowered or withheld.

Signal `oversubscription`: the job has more threads than CPUs, and they keep each other waiting.

A thread that waits for a CPU waits for whoever has it. What others ran in that time bounds what they can
be blamed for; the rest of the training thread's wait is due to the job's other threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.cpu_delay import (
    foreign_delay,
    foreign_delays,
    is_oversubscribed,
    others_cores,
    own_waits,
)
from autobrrr.diagnosis.models.shares import step_parts
from autobrrr.diagnosis.robust_stats import median, of_one, positive, unit_share
from autobrrr.diagnosis.signal_reading import Reading, abstention
from autobrrr.records import CpuTaker, HostSample, Regime
from autobrrr.records.busy_words import takers_words

RECENT_NS = 10_000_000_000


def contention(measured: Measurements) -> list[CpuTaker]:
    """Who has the CPUs that the job waits for, by the last look that found somebody."""
    return next((sample.takers for sample in reversed(measured.host) if sample.takers), [])


def busy_machine(measured: Measurements) -> Reading:
    """The largest of run-queue delays, stolen and throttled time, as the median of the last samples."""
    since_ns = max((sample.t_ns for sample in measured.host), default=0) - RECENT_NS
    recent = [sample for sample in measured.host if sample.t_ns > since_ns]
    found = {
        "of the time the training thread was ready to run and had no CPU": median(
            foreign_delays(measured, recent)
        ),
        "of the time stopped by the CPU limit of its container": _usual(
            each.throttled_share for each in recent
        ),
        "of CPU time stolen by other guests": _usual(each.steal_share for each in recent),
        "of the time training waited for workers that had no CPU": _workers_delay(measured, recent),
    }
    known = {what: share for what, share in found.items() if share is not None}
    if not known:
        return abstention(
            "busy_machine",
            "share of wall time",
            "how long the training thread waits for a CPU was not measured",
        )
    what, share = max(known.items(), key=lambda one: one[1])
    state = "busy" if share >= thresholds.BUSY_AT else "quiet"
    detail = f"{of_one(share)} {what}"
    takers = contention(measured)
    if state == "busy" and takers:
        detail += f"; {takers_words(takers)}"
    return Reading(
        signal="busy_machine",
        value=share,
        unit="share of wall time",
        note=f"machine {state}: {detail}",
        detail=detail,
        firm=share < thresholds.BUSY_AT,
    )


def _usual(shares: Iterable[float | None]) -> float | None:
    return median([known for share in shares if (known := unit_share(share)) is not None])


def _workers_delay(measured: Measurements, recent: Sequence[HostSample]) -> float | None:
    """The part of the time that others make training wait for data, by its workers' wait for a CPU."""
    parts = step_parts(measured)
    delay = _usual(foreign_delay(each.children_delay_share, others_cores(each)) for each in recent)
    return None if parts is None or delay is None else delay * parts.phase.get("data_wait", 0.0)


def oversubscription(measured: Measurements) -> Reading:
    """Speaks for overhead where the job has more threads than CPUs, and waits for them."""
    threads = None if measured.facts is None else measured.facts.threads
    cores = positive(measured.cores)
    if not threads or cores is None:
        return abstention(
            "oversubscription", "share of wall time", "the job's threads or its CPUs are not known"
        )
    waits = own_waits(measured)
    share = median(waits)
    if share is None:
        return abstention(
            "oversubscription",
            "share of wall time",
            "how long the training thread waits for its own threads is not known",
        )
    says: Regime | None = "overhead" if is_oversubscribed(measured) else None
    on = f"{threads} thread{'s' if threads > 1 else ''} on {cores:.0f} CPU{'s' if cores > 1 else ''}"
    return Reading(
        signal="oversubscription",
        value=share,
        unit="share of wall time",
        note=f"{on}: the training thread waits {of_one(share)} of the time for one that its own threads hold",
        says=says,
        firm=share >= thresholds.BUSY_AT + 0.05 and len(waits) >= thresholds.OWN_DELAY_SAMPLES,
    )
