"""Signal `blocked_thread`: the part of the step in which the training thread sleeps in model or collectives.

It neither runs nor waits for a CPU: by the scheduler's clock, less the phases in which a loop may sleep
for reasons of its own (loading, the user's code), as far as they are no collectives.
"""

from __future__ import annotations

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.exposed_waits import exposed_by_phase
from autobrrr.diagnosis.models.shares import step_parts
from autobrrr.diagnosis.robust_stats import median, of_one, positive
from autobrrr.diagnosis.signal_reading import Reading, abstention, weighed

NAME = "blocked_thread"
UNIT = "share of step"
OWN_PHASES = ("data_wait", "other")


def blocked_thread(measured: Measurements) -> Reading:
    """Speaks for communication, in a job of several ranks, where half of the step is slept away."""
    waits = measured.collectives
    if waits is None or waits.status != "ok":
        return abstention(NAME, UNIT, "no collectives were timed")
    step_ns, blocked_ns = positive(median(waits.step_ns)), median(waits.blocked_ns)
    parts = step_parts(measured)
    if (
        step_ns is None
        or blocked_ns is None
        or parts is None
        or len(waits.step_ns) < thresholds.COLLECTIVE_STEPS
    ):
        return abstention(NAME, UNIT, "too few steps were timed, or their phases were not")
    waiting = exposed_by_phase(measured)
    elsewhere = sum(max(0.0, parts.phase.get(name, 0.0) - waiting.get(name, 0.0)) for name in OWN_PHASES)
    share = min(1.0, max(0.0, blocked_ns / step_ns - elsewhere))
    note = f"the training thread sleeps {of_one(share)} of the step in model, optimizer and collectives"
    firm = share >= thresholds.NAMED_AT + 0.05
    return weighed(NAME, UNIT, "communication", share, note, firm=firm, excludes=False)
