"""By what two trials are compared: how fast their steps are, times what a step holds.

In: two live trials, their points. Out: how log-ratios are taken from pairs of blocks. Samples are counted;
tokens where a flag sets their number. Where samples differ in length, the time of a step says nothing without
the tokens of that very step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from autobrrr.relaunch.search.search_space import Point, Space, agreed_ratio
from autobrrr.relaunch.trial.live_trial import LiveTrial
from autobrrr.tuner.ab_blocks import log_speed_ratio, outlier_cap
from autobrrr.tuner.token_adjustment import (
    Durations,
    Pairs,
    at_length,
    at_one_length,
    log_ratios,
    mean_tokens,
)

NOTICEABLE = 0.01
Yardstick = Callable[[Pairs], list[float]]
"""log(speed of the candidate / of the baseline) for each pair that has enough steps. All pairs are taken anew
each time: what steps hold, and how much longer one with more tokens takes, shows better from more."""


def by_steps(pairs: Pairs, held: float = 1.0) -> list[float]:
    """From the time that a step takes on both sides, and what it holds against the other side's.

    Steps far above the others of their own side are brought down. Blocks are of equal time: the slower side
    has fewer steps, which beside the other's would look like outliers.
    """
    caps = [outlier_cap(_all_steps(pairs, side)) for side in (0, 1)]
    capped = ([np.minimum(each.steps, cap) for each, cap in zip(pair, caps, strict=True)] for pair in pairs)
    ratios = [log_speed_ratio(its, mine, rare=True) for its, mine in capped]
    return [each + math.log(held) for each in ratios if each is not None]


def by_long_steps(pairs: Pairs) -> float:
    """log(speed of the candidate / of the baseline) by what is no part of a typical step, and left out there.

    An epoch's start, a checkpoint, another program: to be added to what typical steps show, for the speed of
    all steps together.
    """
    longer = []
    for side in (0, 1):
        steps = _all_steps(pairs, side)
        if not steps.sum():
            return 0.0
        longer.append(math.log(steps.mean() / np.minimum(steps, outlier_cap(steps)).mean()))
    return longer[0] - longer[1]


def _all_steps(pairs: Pairs, side: int) -> Durations:
    return np.concatenate([pair[side].steps for pair in pairs]) if pairs else np.empty(0)


def at_own_length(pairs: Pairs, held: Callable[[float], float]) -> list[float]:
    """From the time that a step takes with as many tokens as it has on average, on each side.

    Args:
        held: What a step holds against the other side's, from the ratio of their tokens.
    """
    base, candidate = ([pair[side] for pair in pairs] for side in (0, 1))
    its, mine = mean_tokens(base), mean_tokens(candidate)
    if not (its and mine):
        return []
    return log_ratios(at_length(base, its), at_length(candidate, mine), held(mine / its))


@dataclass(slots=True)
class Counting:
    """What counts in one study: samples, or tokens.

    Attributes:
        tokens: Tokens count; settled by the command as given, and for all of the study.
        notes: What is to be said of it.
    """

    space: Space
    tokens: bool = False
    varies: bool = False
    notes: list[str] = field(default_factory=list)

    def look(self, base: LiveTrial) -> None:
        """See what the steps of the command as given hold."""
        self.varies = self.varies or base.steps.vary_in_length
        by_flag = self.space.lengths
        if base.steps.tokens is None or self.tokens or not (by_flag or self.varies):
            return
        self.tokens = True
        why = (
            f"{', '.join(by_flag)} may set the length of a sample" if by_flag else "samples differ in length"
        )
        self.notes.append(f"{why}: tokens are counted, as the shapes of batches show them")

    def yardstick(self, base: LiveTrial, candidate: LiveTrial, its_point: Point, point: Point) -> Yardstick:
        """For a candidate with this point against a trial with its own."""

        def samples() -> float:
            return self._samples(base, candidate, its_point, point)

        resized = self.space.resized(point, its_point)
        seen = self.tokens and base.tokens is not None and candidate.tokens is not None
        if not seen or not (resized or self.varies or candidate.steps.vary_in_length):
            return lambda pairs: by_steps(pairs, samples())
        if not (self.varies or candidate.steps.vary_in_length):
            return lambda pairs: by_steps(pairs, (candidate.tokens or 1.0) / (base.tokens or 1.0))
        if resized:
            return lambda pairs: at_own_length(pairs, lambda tokens: tokens)
        if math.isclose(samples(), 1.0, rel_tol=NOTICEABLE):
            return at_one_length
        # Samples are the same ones: what they have more of in a larger batch is padding.
        return lambda pairs: at_own_length(pairs, lambda _: samples())

    def _samples(self, base: LiveTrial, candidate: LiveTrial, its_point: Point, point: Point) -> float:
        """Samples of a step against the other's: as flags say and agents saw; the smaller gain counts."""
        seen = candidate.samples / base.samples if candidate.samples and base.samples else None
        told = self.space.told_ratio(point, its_point)
        accumulates = self.space.batch_of(point) != self.space.batch_of(its_point)
        counted = agreed_ratio(told, seen, accumulates=accumulates)
        asked = told != 1.0 or accumulates
        if told and seen and asked and abs(math.log(seen / told)) > NOTICEABLE:
            self.notes.append(
                f"steps hold {seen:.3g} times the samples but flags say {told:.3g}: the smaller gain counts"
            )
        return counted
