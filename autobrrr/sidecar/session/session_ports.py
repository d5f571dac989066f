"""What a session needs of the world around it; the daemon gives the real things, tests their own."""

from __future__ import annotations

from typing import Protocol

from autobrrr.records import Record
from autobrrr.sidecar.session.ring_reader import Records


class Ring(Protocol):
    """Where step records come from."""

    @property
    def steps(self) -> int:
        """Number of the next record."""

    def read_new(self) -> Records:
        """Records since the last call."""


class Journal(Protocol):
    """Where a session writes down what it found."""

    def write(self, kind: str, body: Record | dict[str, object]) -> None:
        """Append one entry."""
