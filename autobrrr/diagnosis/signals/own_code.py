"""The user's own code: by the clock, and where stacks of the training thread stand.

Signal `host_time`: time outside loading, forward, backward and optimizer in which no operator runs.

Signals `host_frames`, `loader_frames`, `phase_frames`: where stacks of the training thread stand.
"""

from __future__ import annotations

from dataclasses import replace

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.held_phase import held_phase
from autobrrr.diagnosis.models.sampled_frames import UNIT, frames_reading, in_loading, in_own_code, is_firm
from autobrrr.diagnosis.models.shares import host_share, step_parts
from autobrrr.diagnosis.models.traced_kernels import kernel_work
from autobrrr.diagnosis.robust_stats import of_one, unit_share
from autobrrr.diagnosis.signal_reading import STEP, Reading, abstention, weighed


def host_time(measured: Measurements) -> Reading:
    """Speaks for host at half of the step, against it at a quarter."""
    parts = None if measured.outside else step_parts(measured)
    if parts is None or "other" not in parts.phase:
        return abstention("host_time", STEP, "the phases were not measured")
    rest = parts.phase["other"]
    share = host_share(measured, parts)
    if share is None:
        work = kernel_work(measured.traced)
        why = work if isinstance(work, str) else "kernel work was not split by phase"
        return abstention(
            "host_time",
            STEP,
            f"{of_one(rest)} of a step lies between the phases; its operators are unknown: {why}",
        )
    firm = parts.steps >= thresholds.SAMPLED_STEPS_FIRM and share >= thresholds.NAMED_AT + 0.05
    note = f"{of_one(share)} of a step is host code between the phases"
    return weighed("host_time", STEP, "host", share, note, firm=firm)


def host_frames(measured: Measurements) -> Reading:
    """Speaks for host where half of the stacks stand between the phases, and says where."""
    return frames_reading(measured, "host_frames", "host", in_own_code, "stand in the loop's own code")


def loader_frames(measured: Measurements) -> Reading:
    """Speaks for input where half of the stacks stand in data loading, give or take their scatter."""
    found = frames_reading(measured, "loader_frames", "input", in_loading, "stand in data loading")
    return replace(found, says="input") if (found.value or 0.0) >= thresholds.CONFIRMED_AT else found


def phase_frames(measured: Measurements) -> Reading:
    """Speaks for overhead where half of the stacks stand in one function of the user's inside a phase.

    Only where operators don't explain that phase: a stack inside a module's call may stand in a kernel too.
    """
    held = held_phase(measured)
    if held is None:
        return abstention("phase_frames", UNIT, "kernels and dispatch explain every phase")
    if held.samples < thresholds.FRAME_SAMPLES:
        return abstention("phase_frames", UNIT, f"{held.samples} of {thresholds.FRAME_SAMPLES} samples")
    share = unit_share(held.standing) or 0.0
    where = (
        f"{of_one(share)} of {held.samples} samples stand at {held.where}" if held.where else "none stands"
    )
    note = f"{where}, inside {held.phase}, which operators don't explain"
    return weighed(
        "phase_frames", UNIT, "overhead", share, note, firm=is_firm(share, held.samples), excludes=False
    )
