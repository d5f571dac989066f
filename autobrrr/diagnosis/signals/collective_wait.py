"""Signal `collective_wait`: what collectives take beyond the backward that hides them."""

from __future__ import annotations

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.robust_stats import duration, mean, median, of_one, positive, unit_share
from autobrrr.diagnosis.signal_reading import Reading, abstention
from autobrrr.records import CollectiveWaits, Regime

NAME = "collective_wait"
UNIT = "share of step"


def collective_wait(measured: Measurements) -> Reading:
    """Speaks for communication at half of the step, against it at a quarter."""
    waits = measured.collectives
    if waits is None:
        return abstention(NAME, UNIT, "no collectives were timed: one process, or not yet")
    if waits.status != "ok":
        return abstention(NAME, UNIT, waits.why or "it gave no reason")
    share = exposed_share(measured)
    if share is None:
        return abstention(NAME, UNIT, f"{len(waits.step_ns)} of {thresholds.COLLECTIVE_STEPS} steps timed")
    says: Regime | None = "communication" if share >= thresholds.NAMED_AT else None
    # Where only some of the steps communicate, the median may be one that does not.
    on_average = (mean(waits.exposed_ns) or 0.0) / (positive(mean(waits.step_ns)) or 1.0)
    return Reading(
        signal=NAME,
        value=share,
        unit=UNIT,
        note=f"{_told(waits)}, {of_one(share)} of the step",
        says=says,
        against=("communication",) if max(share, on_average) <= thresholds.EXCLUDED_AT else (),
        firm=share >= thresholds.NAMED_AT + 0.05,
    )


def exposed_share(measured: Measurements) -> float | None:
    """Exposed collectives, of the same steps; None where too few were timed."""
    waits = measured.collectives
    if waits is None or waits.status != "ok" or len(waits.step_ns) < thresholds.COLLECTIVE_STEPS:
        return None
    step_ns, exposed_ns = positive(median(waits.step_ns)), median(waits.exposed_ns)
    if step_ns is None or exposed_ns is None or exposed_ns < 0:
        return None
    return unit_share(min(1.0, exposed_ns / step_ns))


def exposed_by_phase(measured: Measurements) -> dict[str, float]:
    """The same by the phase that it lies in: gradients' in the backward, the loop's calls where they are."""
    share, waits = exposed_share(measured), measured.collectives
    if share is None or waits is None:
        return {}
    step_ns, called_ns = positive(median(waits.step_ns)), median(waits.called_ns)
    called = min(share, unit_share((called_ns or 0.0) / step_ns) or 0.0) if step_ns else 0.0
    in_all = positive(sum(waits.called_by_phase_ns.values()))
    if in_all is None:
        return {"backward": share}
    found = {name: called * max(0.0, ns) / in_all for name, ns in waits.called_by_phase_ns.items()}
    found["backward"] = found.get("backward", 0.0) + share - called
    return found


def _told(waits: CollectiveWaits) -> str:
    called_ns, exposed_ns = median(waits.called_ns) or 0.0, median(waits.exposed_ns) or 0.0
    if not called_ns:
        return f"collectives take {duration(exposed_ns)} beyond the backward"
    if called_ns >= 0.9 * exposed_ns:
        return f"collectives that the loop calls take {duration(exposed_ns)}"
    in_calls = f"{duration(called_ns)} of it in the loop's calls"
    return f"collectives take {duration(exposed_ns)} beyond the backward, {in_calls}"
