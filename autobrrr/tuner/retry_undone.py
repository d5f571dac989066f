"""What was undone may pay after all, beside what has been kept since.

In: trials that ended without proof, what is kept by now. Out: those that are worth another trial. A saving
of so many microseconds is a larger share of a shorter step (Amdahl's law).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from autobrrr.tuner.arm_switch import Arm
from autobrrr.tuner.candidate_space import Candidate, Choice

SHORTER = 1.1  # by this factor the step must have become shorter since


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """A trial that brought no proof of a gain."""

    candidate: Candidate
    beside: Arm  # what was kept at that time
    high: float  # log-ratio of speeds: it may have been as good as this


def worth_again(
    undone: list[Undone], kept: Arm, achieved: Callable[[Choice], float], worthwhile: float
) -> list[Candidate]:
    """Candidates whose largest possible saving is a gain worth having of the step as it is now.

    Args:
        undone: Trials, in the order in which they ended.
        kept: What is on by now.
        achieved: Factor on speed that a kept choice has brought.
        worthwhile: Smallest gain worth having; 0.01 is 1 %.
    """
    found: list[tuple[float, Candidate]] = []
    for trial in undone:
        choice = trial.candidate.choice
        shorter = math.prod(achieved(other) for other in kept if other not in trial.beside)
        share = -math.expm1(-trial.high) * shorter  # of the present step
        fits = choice not in kept and not any(choice.conflicts(other) for other in kept)
        if fits and shorter >= SHORTER and share >= 1 - 1 / (1 + worthwhile):
            found.append((share, trial.candidate))
    return [candidate for _, candidate in sorted(found, key=lambda each: -each[0])]
