"""What a trial is started with: the command, its limits, its walls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autobrrr.attach.preload.preloaded_agent import Audit


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLaunch:
    """What is started: words, all variables, what its agents apply.

    Attributes:
        audit: An account of the whole run is written.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path
    plan: Mapping[str, object] | None = None
    remedies: tuple[str, ...] = ()
    audit: Audit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Walls:
    """What a trial may write, where it must be able to, and what stays open.

    Attributes:
        network: It reaches more than its own loopback.
        kept: A folder outside of the walls, for what is kept of the trial's output.
    """

    size_bytes: int
    needed: tuple[str, ...]
    open_folders: tuple[str, ...] = ()
    network: bool = True
    kept: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long a trial may take until it is given up, in seconds."""

    first_step_s: float = 300.0
    settle_s: float = 30.0
    silence_s: float = 30.0
    silence_steps: float = 20.0
    grace_s: float = 3.0


@dataclass(slots=True)
class Kept:
    """What was saved of a trial's output."""

    files: int = 0
    bytes: int = 0
    problem: str | None = None
