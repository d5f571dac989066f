"""What every source of samples looks like, and the one that has none.

A device is asked a few times a second for the last interval; a figure that it cannot give is None.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from autobrrr.records import HostSample


class Device(Protocol):
    """A source of samples of one job."""

    name: str

    def sample(self) -> HostSample | None:
        """Figures over the time since the call before; None where there is nothing to say (any more)."""


class AbsentDevice:
    """Stands where a device is not there: never a figure."""

    name = "absent"

    def sample(self) -> HostSample | None:
        return None


class ReplayedDevice:
    """Gives recorded samples in their order, then nothing."""

    name = "replayed"

    def __init__(self, samples: Iterable[HostSample]) -> None:
        self._samples = iter(samples)

    def sample(self) -> HostSample | None:
        return next(self._samples, None)
