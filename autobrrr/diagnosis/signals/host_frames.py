"""Signal `host_frames`: how often the training thread was found in the user's code between phases."""

from __future__ import annotations

from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.sampled_frames import frames_reading, in_own_code
from autobrrr.diagnosis.signal_reading import Reading

NAME = "host_frames"


def host_frames(measured: Measurements) -> Reading:
    """Speaks for host where half of the stacks stand between the phases, and says where."""
    return frames_reading(measured, NAME, "host", in_own_code, "stand in the loop's own code")
