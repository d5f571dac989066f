"""What every source of samples looks like, and the one that has none.

A device is asked a few times a second for the last interval; a figure that it cannot give is None.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

Sample = TypeVar("Sample")
Sample_co = TypeVar("Sample_co", covariant=True)


class DeviceSource(Protocol[Sample_co]):
    """A source of samples of one job."""

    name: str

    def sample(self) -> Sample_co | None:
        """Figures over the time since the call before; None where there is nothing to say (any more)."""


class Driven(DeviceSource[Sample_co], Protocol[Sample_co]):
    """A device behind a driver that has to be let go of."""

    gone: bool  # nothing will ever come (any more)

    def close(self) -> None:
        """Let go of it, on the thread that samples."""


class AbsentDevice:
    """Stands where a device is not there: never a figure."""

    name = "absent"

    def __init__(self) -> None:
        self.gone = True

    def sample(self) -> None:
        return None

    def close(self) -> None:
        """There is nothing to let go of."""


class ReplayedDevice(Generic[Sample]):
    """Gives recorded samples in their order, then nothing."""

    name = "replayed"

    def __init__(self, samples: Iterable[Sample]) -> None:
        self.gone = False
        self._samples = iter(samples)

    def sample(self) -> Sample | None:
        found = next(self._samples, None)
        self.gone = found is None
        return found

    def close(self) -> None:
        """There is nothing to let go of."""
