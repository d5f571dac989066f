"""What a recipe holds, once it has been read and found valid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

from autobrrr.records import Advice, ExactnessClass

SCHEMA = 1
Value = str | int | float | bool
Positive = Annotated[float, msgspec.Meta(gt=0)]


class FileTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A table of a recipe's file."""


class Match(FileTable, frozen=True, kw_only=True):
    """When a recipe applies; what is None is not asked for."""

    script: str | None = None
    """Glob on the script's name, or on its path where it holds a slash."""

    device: Literal["cpu", "cuda"] | None = None

    torch: str | None = None
    """Versions, such as ">=2.4,<3"."""


class Measured(FileTable, frozen=True, kw_only=True):
    """What was measured, on what. Times are in nanoseconds a step."""

    speedup: Positive | None = None
    interval: tuple[float, float] | None = None
    baseline_ns: Positive | None = None
    best_ns: Positive | None = None
    host_peak_bytes: Positive | None = None
    device_peak_bytes: Positive | None = None
    measured_on: str | None = None
    at_least: bool = False  # of a running job; a job that starts with the recipe was not timed


class Numerics(FileTable, frozen=True, kw_only=True):
    """What it does to the numbers."""

    class_: ExactnessClass | None = msgspec.field(default=None, name="class")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A valid recipe. `source` is for messages; `text` is what it was read from."""

    source: str = field(default="recipe", compare=False)
    text: str = field(default="", compare=False, repr=False)
    description: str | None = None
    match: Match = field(default_factory=Match)
    remedies: tuple[Advice, ...] = ()
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)  # of those that were read
    args: Mapping[str, Value] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    evidence: Measured | None = None
    numerics: ExactnessClass | None = None
