"""What a remedy brings by its rehearsal: its calls timed on copies, in place of any estimate.

In: nanoseconds a step in those calls, as they were and with the remedy, and the share of the step that they
can have at most: calls on copies may meet a busier moment than the steps did. Out: a factor on speed, with
bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

from autobrrr.diagnosis.robust_stats import duration, positive
from autobrrr.records import Phases, Rehearsed

LEAST_LEFT = 0.01  # of the step: a gain beyond it says that step or calls were not measured well


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedGain:
    """Factors on speed."""

    expected: float
    interval: tuple[float, float]
    told: str


def inside_calls(phases: Phases, step_ns: float | None) -> float | None:
    """Share of the step in forward and backward; None where they were not measured."""
    spent, step = (phases.forward, phases.backward), positive(step_ns)
    if step is None or None in spent:
        return None
    return min(1.0, sum(each or 0 for each in spent) / step)


def rehearsed_gain(found: Rehearsed, step_ns: float | None, inside: float | None) -> RehearsedGain | None:
    """What of a step of this length the remedy's calls save; None where the step is not known.

    Args:
        inside: Share of the step in forward and backward, where that is known.
    """
    step, plain_ns = positive(step_ns), positive(found.plain_ns)
    if step is None or plain_ns is None:
        return None
    share = min(plain_ns / step, 1.0 if inside is None else inside)

    def factor(calls_ns: float) -> float:
        return 1 / max(LEAST_LEFT, 1 - share * (1 - calls_ns / plain_ns))

    return RehearsedGain(
        expected=factor(found.other_ns),
        interval=(factor(found.most_ns), factor(found.least_ns)),
        told=(
            f"timed on copies: its calls take {duration(found.other_ns)} a step, "
            f"{duration(plain_ns)} as they are"
        ),
    )
