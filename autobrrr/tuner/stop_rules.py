"""When a comparison ends: the rules, as functions of the intervals so far."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from autobrrr.quantities import share
from autobrrr.tuner.confidence_sequence import Interval

Decision = Literal["better", "hopeless", "harmful", "undecided", "failed", "cancelled"]
"""`harmful`: the job crawled, stood, or lost its loss with it; `failed`: it could not be held."""

WORTHWHILE = 0.01  # smallest gain worth having
FEWEST_PAIRS = 6
MOST_PAIRS = 600
NARROW = 0.01  # half of an interval
LONG_STEPS = "slower over all steps: long ones come more often with it"
# Chance that so many blocks with long steps fall to its side: look longer, don't claim, give up.
PERHAPS, RATHER, SURELY = 0.3, 0.1, 0.0002


@dataclass(frozen=True, slots=True, kw_only=True)
class PairStanding:
    """What is known after some pairs."""

    pairs: int
    interval: Interval | None  # log-ratio of speeds
    pause_ns: int = 0  # longest own work of the agent at a change of remedies
    chance: float = 1.0  # that it is slower over all steps so far, by long ones, without being the cause


NO_PAIRS = PairStanding(pairs=0, interval=None)
StopRule = Callable[[PairStanding], tuple[Decision, str] | None]


def proof(
    worthwhile: float, horizon_ns: float, *, fewest: int = FEWEST_PAIRS, precise: bool = False
) -> StopRule:
    """Better once the interval excludes zero; hopeless once it excludes a gain worth having, or time is lost.

    Args:
        worthwhile: Smallest gain worth having; 0.01 is 1 %.
        horizon_ns: The pause of applying must be earned back within it.
        fewest: Pairs, before anything is decided.
        precise: Better only once the interval is narrow, too, against what it shows.
    """

    def rule(now: PairStanding) -> tuple[Decision, str] | None:
        interval = now.interval
        if now.pairs < fewest or interval is None:
            return None
        least = math.log1p(max(worthwhile, now.pause_ns / max(horizon_ns, 1)))
        said = interval.words
        if now.chance < SURELY:
            return "hopeless", LONG_STEPS
        if interval.high < least:
            few = f"no gain of {share(math.expm1(least), 1)} or more" if least > 0 else "slower"
            return "hopeless", f"{few}: {said}"
        narrow = (interval.high - interval.low) / 2 <= max(NARROW, 0.1 * abs(interval.mean))
        if interval.low > 0 and interval.mean >= least and now.chance >= PERHAPS and (narrow or not precise):
            return "better", f"faster: {said}"
        if now.pairs >= MOST_PAIRS:
            return "undecided", f"not proven after {now.pairs} A/B pairs: {said}"
        return None

    return rule


PRECISION = proof(0.0, math.inf, fewest=2 * FEWEST_PAIRS, precise=True)
"""For the confirmation run: on until the interval is narrow."""
