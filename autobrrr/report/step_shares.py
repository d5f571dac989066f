"""Figures as a person reads them: durations, shares, phases; "-" where nothing was measured."""

from __future__ import annotations

import msgspec

from autobrrr.records import Phases, Record

NOT_MEASURED = "-"


def duration(ns: float | None) -> str:
    """Three digits and a unit: 1.42 ms."""
    if ns is None:
        return NOT_MEASURED
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(ns) >= scale:
            return f"{_three_digits(ns / scale)} {unit}"
    return f"{ns:.0f} ns"


def share(part: float | None) -> str:
    """A share in percent: 31 %; small ones with the digits that tell them from nothing."""
    if part is None:
        return NOT_MEASURED
    percent = 100 * part
    if 0 < abs(percent) < 0.01:
        return "<0.01 %"
    return f"{percent:.2f} %" if 0 < abs(percent) < 1 else f"{percent:.0f} %"


def parts(record: Record, least: float = 0.0) -> list[tuple[str, float]]:
    """The measured fields of a record of figures, largest first."""
    fields = msgspec.structs.asdict(record)
    found = [(name.replace("_", " "), value) for name, value in fields.items() if value is not None]
    return sorted(((name, value) for name, value in found if value > least), key=lambda part: -part[1])


def phase_shares(phases: Phases) -> list[tuple[str, float]]:
    """Each measured phase as a share of their sum, in the order of a step.

    What is not timed apart (forward and optimizer in compiled code) lies in `other`, whose name says so.
    """
    fields = msgspec.structs.asdict(phases)
    measured = [(name.replace("_", " "), value) for name, value in fields.items() if value is not None]
    whole = sum(value for _, value in measured)
    inside = [name for name in ("forward", "optimizer") if fields[name] is None]
    other = f"other with {' and '.join(inside)}" if inside else "other"
    named = [(other if name == "other" else name, value) for name, value in measured]
    return [(name, value / whole) for name, value in named] if whole > 0 else []


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
