"""What a session was asked for, and where it stands. Imports nothing heavy: the command line reads it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
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
    unproven: bool = False
    """Also what no GPU has run yet."""
    metrics: str | None = None
    """Where Prometheus may fetch figures: a port of this machine, or HOST:PORT."""


AWAITS_TURN = "waiting until another rank of the job is measured"


class State(Enum):
    """Where a session stands. The order is the usual one; JUDGED goes back to WATCHING on request."""

    WATCHING = "watching"  # waits for the loop's anatomy and a few steps
    TRACING = "tracing"  # a few real steps under torch's CPU profiler
    TIMING = "timing"  # collectives of a few plain steps
    PROFILING = "profiling"  # a few steps under torch.profiler
    DELAYING = "delaying"  # the host is held up in a few steps: does the device wait?
    SAMPLING = "sampling"  # stacks of the training thread
    PROBING = "probing"  # operator replay at other batch sizes
    SWEEPING = "sweeping"  # the same along a size, on request
    JUDGED = "judged"  # all is measured; goes on watching
    TUNING = "tuning"
    DETACHING = "detaching"
    ENDED = "ended"
