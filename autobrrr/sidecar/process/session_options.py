"""What a session was asked for. Imports nothing heavy: the command line reads it."""

from __future__ import annotations

from dataclasses import dataclass
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
