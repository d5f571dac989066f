"""What a session was asked for, and how it is passed on to the background process.

Imports nothing heavy: the command line and a sidecar that is about to fork read it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

Probing = Literal["on", "off"]
Sweep = Literal["batch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """How far a session may go."""

    readonly: bool = False
    """Neither traced steps nor probe nor remedies."""
    probing: Probing = "on"
    """Whether the batch probe runs."""
    outside: bool = False
    """No code in the target at all."""
    metrics: str | None = None
    """Where Prometheus may fetch figures: a port of this machine, or HOST:PORT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarOrder:
    """What a background process is started for: as JSON, the argument behind the pid."""

    options: SessionOptions
    foreground: bool = False
    """It stays a child of the starter, and ends with it."""
    owned: bool = False
    """It ends unless a client soon owns the session."""
    ready_fd: int | None = None
    """Where the starter listens."""
    tracer_fd: int | None = None
    """Of the process that keeps root's right to make the one borrowed call."""

    def word(self) -> str:
        return json.dumps(asdict(self))


def order_from(word: str) -> SidecarOrder:
    """The order that a word holds."""
    fields = json.loads(word)
    return SidecarOrder(**{**fields, "options": SessionOptions(**fields["options"])})
