"""What collectives take beyond the backward that hides them, of a step, and in which phase."""

from __future__ import annotations

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.robust_stats import median, positive, unit_share


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
