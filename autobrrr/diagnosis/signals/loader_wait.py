"""Signal `loader_wait`: the part of the step spent in the DataLoader's `next`, by the loop's clock."""

from __future__ import annotations

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.shares import fed_share, step_parts
from autobrrr.diagnosis.robust_stats import of_one, positive
from autobrrr.diagnosis.signal_reading import Reading, abstention, weighed

NAME = "loader_wait"
UNIT = "share of step"


def loader_wait(measured: Measurements) -> Reading:
    """Speaks for input at half of the step, against it at a quarter.

    What is loading by the sampled stacks alone makes nothing firm: stacks are the second signal.
    """
    if measured.outside:
        return abstention(NAME, UNIT, "nothing is measured inside the target")
    if measured.on_device:
        return abstention(NAME, UNIT, "on a GPU the host may wait for data while the device works")
    parts = step_parts(measured)
    if parts is None or "data_wait" not in parts.phase:
        return abstention(NAME, UNIT, "the wait for data was not measured")
    fed = fed_share(measured, parts)
    share = min(1.0, parts.phase["data_wait"] + fed)
    if parts.steps < thresholds.SAMPLED_STEPS:
        return abstention(NAME, UNIT, f"{parts.steps} of {thresholds.SAMPLED_STEPS} sampled steps", share)
    error = _error(measured)
    surely = 0.0 if error is None else share - fed - 2 * error
    firm = parts.steps >= thresholds.SAMPLED_STEPS_FIRM and surely >= thresholds.NAMED_AT
    note = f"{of_one(share)} of a step waits for data ({parts.steps} steps)"
    own = f", {of_one(fed)} in a generator of the script's own" if fed else ""
    return weighed(NAME, UNIT, "input", share, note + own, firm=firm)


def _error(measured: Measurements) -> float | None:
    """Standard error of the share, by that of the mean wait."""
    sampled = measured.phases
    if sampled is None or sampled.error.data_wait is None or sampled.mean.data_wait is None:
        return None
    step_ns, wait_ns = positive(sampled.step_ns), max(0, sampled.mean.data_wait)
    # A longer wait lengthens the step as well: d(w / s) = dw * (s - w) / s^2.
    if step_ns is None:
        return None
    return abs(sampled.error.data_wait) * max(0.0, step_ns - wait_ns) / step_ns**2
