"""Devices that a test hands in: one that is not there, one that plays what was recorded."""

from collections.abc import Iterable
from typing import Generic, TypeVar

Sample = TypeVar("Sample")


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
