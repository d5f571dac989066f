"""Signals `host_frames` and `loader_frames`: where sampled stacks of the training thread stand."""

from __future__ import annotations

from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.sampled_frames import frames_reading, in_loading, in_own_code
from autobrrr.diagnosis.signal_reading import Reading


def host_frames(measured: Measurements) -> Reading:
    """Speaks for host where half of the stacks stand between the phases, and says where."""
    return frames_reading(measured, "host_frames", "host", in_own_code, "stand in the loop's own code")


def loader_frames(measured: Measurements) -> Reading:
    """Speaks for input where half of the stacks stand in data loading."""
    return frames_reading(measured, "loader_frames", "input", in_loading, "stand in data loading")
