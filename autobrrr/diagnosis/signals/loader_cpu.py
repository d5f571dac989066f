"""Signal `loader_cpu`: how busy the DataLoader's workers keep their cores. It names nothing.

Workers that compute all the time want more of them or cheaper samples; idle ones wait for a disk, a
network, or for training.
"""

from __future__ import annotations

from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.robust_stats import median, of_one, positive, unit_share
from autobrrr.diagnosis.signal_reading import Reading, abstention

NAME = "loader_cpu"
UNIT = "share of a core"


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
