"""Signal `phase_frames`: how often the thread was found in one function of the user's inside a phase.

Only where operators don't explain that phase: a stack inside a module's call may stand in a kernel too.
"""

from __future__ import annotations

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.held_phase import held_phase
from autobrrr.diagnosis.models.sampled_frames import UNIT, is_firm
from autobrrr.diagnosis.robust_stats import of_one, unit_share
from autobrrr.diagnosis.signal_reading import Reading, abstention, weighed

NAME = "phase_frames"


def phase_frames(measured: Measurements) -> Reading:
    """Speaks for overhead where half of the stacks stand in one function, and no operator explains it."""
    held = held_phase(measured)
    if held is None:
        return abstention(NAME, UNIT, "kernels and dispatch explain every phase")
    if held.samples < thresholds.FRAME_SAMPLES:
        return abstention(NAME, UNIT, f"{held.samples} of {thresholds.FRAME_SAMPLES} samples")
    share = unit_share(held.standing) or 0.0
    where = (
        f"{of_one(share)} of {held.samples} samples stand at {held.where}" if held.where else "none stands"
    )
    note = f"{where}, inside {held.phase}, which operators don't explain"
    return weighed(NAME, UNIT, "overhead", share, note, firm=is_firm(share, held.samples), excludes=False)
