"""What a job of several ranks waits for.

Signal `collective_wait`: what collectives take beyond the backward that hides them.

Signal `blocked_thread`: the part of the step in which the training thread sleeps in model or collectives.

By the scheduler's clock it neither runs nor waits for a CPU. Loading and the user's code are left out, unless
they wait in a collective: a loop may sleep there for other reasons.
"""

from __future__ import annotations

from statistics import fmean

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.exposed_waits import exposed_by_phase, exposed_share
from autobrrr.diagnosis.models.shares import step_parts
from autobrrr.diagnosis.robust_stats import duration, median, of_one, positive
from autobrrr.diagnosis.signal_reading import STEP, Reading, abstention, weighed
from autobrrr.records import CollectiveWaits

OWN_PHASES = ("data_wait", "other")


def collective_wait(measured: Measurements) -> Reading:
    """Speaks for communication at half of the step, against it at a quarter."""
    waits = measured.collectives
    if waits is None:
        return abstention("collective_wait", STEP, "no collectives were timed: one process, or not yet")
    if waits.status != "ok":
        return abstention("collective_wait", STEP, waits.why or "it gave no reason")
    share = exposed_share(measured)
    if share is None:
        return abstention(
            "collective_wait", STEP, f"{len(waits.step_ns)} of {thresholds.COLLECTIVE_STEPS} steps timed"
        )
    # Where only some of the steps communicate, the median may be one that does not.
    on_average = fmean(waits.exposed_ns or [0]) / (positive(fmean(waits.step_ns or [0])) or 1.0)
    excludes = on_average <= thresholds.EXCLUDED_AT and max(waits.reduced, default=0) <= 1
    note, firm = f"{_told(waits)}, {of_one(share)} of the step", share >= thresholds.NAMED_AT + 0.05
    return weighed("collective_wait", STEP, "communication", share, note, firm=firm, excludes=excludes)


def _told(waits: CollectiveWaits) -> str:
    called_ns, exposed_ns = median(waits.called_ns) or 0.0, median(waits.exposed_ns) or 0.0
    if not called_ns:
        return f"collectives take {duration(exposed_ns)} beyond the backward"
    if called_ns >= 0.9 * exposed_ns:
        return f"collectives that the loop calls take {duration(exposed_ns)}"
    in_calls = f"{duration(called_ns)} of it in the loop's calls"
    return f"collectives take {duration(exposed_ns)} beyond the backward, {in_calls}"


def blocked_thread(measured: Measurements) -> Reading:
    """Speaks for communication, in a job of several ranks, where half of the step is slept away."""
    waits = measured.collectives
    if waits is None or waits.status != "ok":
        return abstention("blocked_thread", STEP, "no collectives were timed")
    step_ns, blocked_ns = positive(median(waits.step_ns)), median(waits.blocked_ns)
    parts = step_parts(measured)
    if (
        step_ns is None
        or blocked_ns is None
        or parts is None
        or len(waits.step_ns) < thresholds.COLLECTIVE_STEPS
    ):
        return abstention("blocked_thread", STEP, "too few steps were timed, or their phases were not")
    waiting = exposed_by_phase(measured)
    elsewhere = sum(max(0.0, parts.phase.get(name, 0.0) - waiting.get(name, 0.0)) for name in OWN_PHASES)
    share = min(1.0, max(0.0, blocked_ns / step_ns - elsewhere))
    note = f"the training thread sleeps {of_one(share)} of the step in model, optimizer and collectives"
    firm = share >= thresholds.NAMED_AT + 0.05
    return weighed("blocked_thread", STEP, "communication", share, note, firm=firm, excludes=False)
