"""The measured parts of a step, named and ordered for people."""

from __future__ import annotations

import msgspec

from autobrrr.records import Phases, Record


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
