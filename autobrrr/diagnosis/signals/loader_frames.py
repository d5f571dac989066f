"""Signal `loader_frames`: how often the training thread was found inside the loader."""

from __future__ import annotations

from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.sampled_frames import frames_reading
from autobrrr.diagnosis.signal_reading import Reading
from autobrrr.records import FrameCount

NAME = "loader_frames"


def loader_frames(measured: Measurements) -> Reading:
    """Speaks for input where half of the stacks stand in data loading."""
    return frames_reading(measured, NAME, "input", _in_loader, "stand in the loader")


def _in_loader(place: FrameCount) -> bool:
    # By the frames themselves, never by the phase: that would be the loader's clock once more.
    return place.in_loader
