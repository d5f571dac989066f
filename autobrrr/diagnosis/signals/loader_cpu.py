"""Signal `loader_cpu`: how busy the DataLoader's workers keep their cores. It names nothing.

Workers that compute all the time want more of them or cheaper samples; idle ones wait for a disk, a
network, or for training.
"""

from __future__ import annotations

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.shares import step_parts
from autobrrr.diagnosis.robust_stats import median, of_one, positive, unit_share
from autobrrr.diagnosis.signal_reading import Reading, abstention
from autobrrr.diagnosis.signals.busy_machine import busy_machine

NAME = "loader_cpu"
UNIT = "share of a core"
SLEEPS_AT = 0.5  # of the time of loading


def loader_cpu(measured: Measurements) -> Reading:
    """Says how much of a core each worker uses, over the last looks at the job's children."""
    workers = None if measured.anatomy is None else positive(measured.anatomy.loader_workers)
    if workers is None:
        return abstention(NAME, UNIT, "no DataLoader workers")
    busy = [positive(sample.children_cpu_share) for sample in measured.host]
    total = median([share for share in busy if share is not None])
    share = None if total is None else unit_share(total / workers)
    if share is None:
        return abstention(NAME, UNIT, "the workers' CPU time was not measured")
    return Reading(
        signal=NAME,
        value=share,
        unit=UNIT,
        note=f"each of {workers:.0f} workers uses {of_one(share)} of a core",
    )


def loading_sleeps(measured: Measurements) -> bool:
    """Whether loading that training waits for sleeps more than it computes, and not for want of a CPU.

    In the training process by the CPU time of the whole job, which is more than that of loading.
    """
    parts, busy = step_parts(measured), busy_machine(measured)
    wait = None if parts is None else parts.phase.get("data_wait")
    if wait is None or wait < thresholds.NAMED_AT or busy.abstained or not busy.firm:
        return False
    beside = loader_cpu(measured)
    if not beside.abstained and beside.value is not None:
        return beside.value <= SLEEPS_AT
    if measured.anatomy is None or measured.anatomy.loader_workers != 0:
        return False
    taken = median([sample.cpu_share for sample in measured.host if sample.cpu_share is not None])
    return taken is not None and taken <= SLEEPS_AT * wait
