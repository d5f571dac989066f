"""What a recipe holds, once it has been read and found valid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autobrrr.records import ExactnessClass

SCHEMA = 1
FIGURES = ("baseline_ns", "best_ns", "host_peak_bytes", "device_peak_bytes")  # of `Measured`, above zero
Value = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """When a recipe applies; what is None is not asked for."""

    script: str | None = None
    """Glob on the script's name, or on its path where it holds a slash."""

    device: str | None = None
    """"cpu" or "cuda"."""

    torch: str | None = None
    """Versions, such as ">=2.4,<3"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """One remedy with its options; `line` is where it stands, None where it was not read."""

    name: str
    options: Mapping[str, Value] = field(default_factory=dict)
    line: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured, on what. Times are in nanoseconds a step.

    `at_least`: on a running job. What acts from the first step on may be faster; no fresh start was measured.
    """

    speedup: float | None = None
    at_least: bool = False
    interval: tuple[float, float] | None = None
    baseline_ns: float | None = None
    best_ns: float | None = None
    host_peak_bytes: float | None = None
    device_peak_bytes: float | None = None
    measured_on: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A valid recipe. `source` is for messages."""

    source: str = field(default="recipe", compare=False)
    description: str | None = None
    match: Match = field(default_factory=Match)
    remedies: tuple[Chosen, ...] = ()
    args: Mapping[str, Value] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    evidence: Measured | None = None
    numerics: ExactnessClass | None = None
