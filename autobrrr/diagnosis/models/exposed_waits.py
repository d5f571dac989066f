"""What collectives take beyond the backward that hides them, of a step, and in which phase."""

from __future__ import annotations

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.robust_stats import median, positive, share_of


def exposed_share(measured: Measurements) -> float | None:
    """Exposed collectives, of the same steps; None where too few were timed."""
    waits = measured.collectives
    if waits is None or waits.status != "ok" or len(waits.step_ns) < thresholds.COLLECTIVE_STEPS:
        return None
    exposed_ns = median(waits.exposed_ns)
    return None if exposed_ns is None or exposed_ns < 0 else share_of(exposed_ns, median(waits.step_ns))


def exposed_by_phase(measured: Measurements) -> dict[str, float]:
    """The same by the phase that it lies in: gradients' in the backward, the loop's calls where they are."""
    share, waits = exposed_share(measured), measured.collectives
    if share is None or waits is None:
        return {}
    called = min(share, share_of(median(waits.called_ns), median(waits.step_ns)) or 0.0)
    in_all = positive(sum(waits.called_by_phase_ns.values()))
    if in_all is None:
        return {"backward": share}
    found = {name: called * max(0.0, ns) / in_all for name, ns in waits.called_by_phase_ns.items()}
    found["backward"] = found.get("backward", 0.0) + share - called
    return found
