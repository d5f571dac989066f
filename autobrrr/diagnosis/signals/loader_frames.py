"""Signal `loader_frames`: how often the training thread was found inside the loader."""

from __future__ import annotations

from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.sampled_frames import frames_reading, in_loading
from autobrrr.diagnosis.signal_reading import Reading

NAME = "loader_frames"


def loader_frames(measured: Measurements) -> Reading:
    """Speaks for input where half of the stacks stand in data loading."""
    return frames_reading(measured, NAME, "input", in_loading, "stand in data loading")
