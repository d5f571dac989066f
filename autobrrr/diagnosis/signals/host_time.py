"""Signal `host_time`: time outside loading, forward, backward and optimizer in which no operator runs."""

from __future__ import annotations

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.shares import host_share, step_parts
from autobrrr.diagnosis.models.traced_kernels import kernel_work
from autobrrr.diagnosis.robust_stats import of_one
from autobrrr.diagnosis.signal_reading import Reading, abstention, weighed

NAME = "host_time"
UNIT = "share of step"


def host_time(measured: Measurements) -> Reading:
    """Speaks for host at half of the step, against it at a quarter."""
    parts = None if measured.outside else step_parts(measured)
    if parts is None or "other" not in parts.phase:
        return abstention(NAME, UNIT, "the phases were not measured")
    rest = parts.phase["other"]
    share = host_share(measured, parts)
    if share is None:
        work = kernel_work(measured.traced)
        why = work if isinstance(work, str) else "kernel work was not split by phase"
        return abstention(
            NAME, UNIT, f"{of_one(rest)} of a step lies between the phases; its operators are unknown: {why}"
        )
    firm = parts.steps >= thresholds.SAMPLED_STEPS_FIRM and share >= thresholds.NAMED_AT + 0.05
    note = f"{of_one(share)} of a step is host code between the phases"
    return weighed(NAME, UNIT, "host", share, note, firm=firm)
