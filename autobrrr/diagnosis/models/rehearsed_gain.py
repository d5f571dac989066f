"""What a remedy brings by its rehearsal: its calls timed on copies, in place of any estimate.

In: nanoseconds a step in those calls, as they were and with the remedy. Out: a factor on speed, with bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

from autobrrr.diagnosis.robust_stats import duration, positive
from autobrrr.records import Rehearsed

LEAST_LEFT = 0.01  # of the step: a gain beyond it says that step or calls were not measured well


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedGain:
    """Factors on speed."""

    expected: float
    interval: tuple[float, float]
    told: str


def rehearsed_gain(found: Rehearsed, step_ns: float | None) -> RehearsedGain | None:
    """What of a step of this length the remedy's calls save; None where the step is not known."""
    if positive(step_ns) is None or step_ns is None:
        return None
    step = step_ns

    def factor(calls_ns: float) -> float:
        return step / max(LEAST_LEFT * step, step - found.plain_ns + calls_ns)

    return RehearsedGain(
        expected=factor(found.other_ns),
        interval=(factor(found.most_ns), factor(found.least_ns)),
        told=(
            f"timed on copies: its calls take {duration(found.other_ns)} of the {duration(step)} step, "
            f"{duration(found.plain_ns)} as they are"
        ),
    )
