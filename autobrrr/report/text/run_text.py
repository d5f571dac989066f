"""What a recipe does to a run, before it starts; and how fast the run was, beside the recipe's evidence."""

from __future__ import annotations

from collections.abc import Container, Mapping

from autobrrr.quantities import duration
from autobrrr.recipe import Recipe
from autobrrr.recipe.recipe_contents import Measured, Value
from autobrrr.records.gain_words import gain_words


def begun_with(
    chosen: Recipe, flags: Mapping[str, Value], variables: Mapping[str, str], left_out: Container[str] = ()
) -> str | None:
    """Flags and variables that the command starts with, and remedies that follow; None for none of them."""
    parts = [
        ("flags", " ".join(f"{flag} {value}" for flag, value in flags.items())),
        ("variables", " ".join(f"{name}={value}" for name, value in variables.items())),
        ("remedies", ", ".join(each.remedy for each in chosen.remedies if each.remedy not in left_out)),
    ]
    said = [f"{name} {what}" for name, what in parts if what]
    return f"recipe {chosen.source}: {'; '.join(said)}" if said else None


def speed_reached(step_ns: Mapping[str, object] | None, evidence: Measured | None) -> str | None:
    """`this run: 3.50 ms a step …`; None where no step was timed."""
    median, count = (step_ns or {}).get("median"), (step_ns or {}).get("count")
    if not isinstance(median, int | float) or isinstance(median, bool):
        return None
    said = f"this run: {duration(median)} a step, the median of {count}"
    if evidence is None or evidence.speedup is None:
        return said
    times = ""
    if evidence.baseline_ns and evidence.best_ns:
        times = f"{duration(evidence.baseline_ns)} → {duration(evidence.best_ns)}, "
    where = f" on {evidence.measured_on}" if evidence.measured_on else ""
    gain = f"{'at least ' if evidence.at_least else ''}{gain_words(evidence.speedup, evidence.interval)}"
    return f"{said}; the recipe was measured at {times}{gain}{where}"
