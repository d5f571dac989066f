"""Whose fault a thread's wait for a CPU is: that of others, for as much as they ran, else the job's own.

In: the run-queue delay of the training thread, and what others ran on the job's CPUs meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.robust_stats import median, positive, unit_share
from autobrrr.records import HostSample


def own_waits(measured: Measurements) -> list[float]:
    """The job's own part of the wait, at each look that could tell."""
    looks = [(sample.run_delay_share, others_cores(sample)) for sample in measured.host]
    if measured.traced is not None:
        looks.append((measured.traced.run_delay_share, measured.traced.foreign_cores))
    return [wait for wait in (own_delay(*look) for look in looks) if wait is not None]


def mean_delay(measured: Measurements, *, workers: bool = False) -> float:
    """The part of the time that other programs, or the job's workers, held the CPU; 0 if unknown.

    A burst that the median of the last looks does not show is in every mean of that time.
    """
    beside = [unit_share(one.run_delay_share) or 0.0 for one in measured.host if one.children_cpu_share]
    known = beside if workers else foreign_delays(measured, measured.host)
    return sum(known) / len(known) if known else 0.0


def foreign_delays(measured: Measurements, looks: Sequence[HostSample]) -> list[float]:
    """The same at each look that could tell. A loader's workers are the job's, whoever waits for them."""
    own = outnumber(measured)
    found = [
        foreign_delay(each.run_delay_share, others_cores(each) if own or each.children_cpu_share else None)
        for each in looks
    ]
    return [delay for delay in found if delay is not None]


def others_cores(seen: HostSample) -> float | None:
    """Cores that neither the job's workers nor its other ranks took."""
    if seen.foreign_cores is None:
        return None
    return max(0.0, seen.foreign_cores - (seen.children_cpu_share or 0.0) - (seen.ranks_cpu_share or 0.0))


def is_oversubscribed(measured: Measurements) -> bool:
    """Whether the job's threads take the CPUs from each other, and nobody else does."""
    share = median(own_waits(measured))
    return outnumber(measured) and share is not None and share >= thresholds.BUSY_AT


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
