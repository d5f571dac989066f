"""What every source of samples looks like.

A device is asked a few times a second for the last interval; a figure that it cannot give is None.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

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
