"""Signal `batch_probe`: the part of the step that does not grow with the batch.

It never decides alone: weights and optimizer state that are moved once per step are fixed too.
"""

from __future__ import annotations

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.batch_fit import fit_batch
from autobrrr.diagnosis.robust_stats import of_one
from autobrrr.diagnosis.signal_reading import Reading, abstention, weighed
from autobrrr.records import BatchProbe

NAME = "batch_probe"
UNIT = "share of step"


def batch_probe(measured: Measurements) -> Reading:
    """Speaks for overhead where half of the step is fixed, against it at a quarter."""
    if measured.probe is None:
        if measured.readonly or measured.outside:
            return abstention(NAME, UNIT, "a read-only session replays nothing")
        if measured.probing == "off":
            return abstention(NAME, UNIT, "switched off by --no-probe")
    fit = fit_batch(measured.probe)
    if isinstance(fit, BatchProbe):
        return abstention(NAME, UNIT, fit.why or "no fit")
    firm = fit.share - fit.error >= thresholds.NAMED_AT and fit.enough
    fixed = f"{of_one(fit.share)} of the step does not grow with the batch"
    note = f"{fixed}{doubling(fit.probe)}{_fitting(measured)}"
    return weighed(NAME, UNIT, "overhead", fit.share, note, firm=firm)


def _fitting(measured: Measurements) -> str:
    memory = None if measured.probe is None else measured.probe.memory
    if memory is None or memory.largest_batch is None:
        return ""
    return f"; memory for about {memory.largest_batch} samples"


def doubling(probe: BatchProbe) -> str:
    """What doubling the batch would do, as the end of a sentence; empty where it is not known."""
    if probe.ratio_2x_interval is None:
        return ""
    low, high = (f"{end:.2f}" for end in probe.ratio_2x_interval)
    times = f"{low}x" if low == high else f"{low} to {high}x"
    return f"; doubling the batch would take {times} the time"
