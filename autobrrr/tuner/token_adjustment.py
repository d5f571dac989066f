"""Step times over samples that differ in length: as if all steps held the same number of tokens.

In: blocks of one side of a comparison, with the tokens of those steps that show them. Out: for each block the
mean time of a step at a given number of tokens, from a line of time against tokens through all steps of that
side. A block that drew short samples is no faster for that; its noise is the machine's, not that of the draw.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autobrrr.agent.wire import ring_layout
from autobrrr.tuner.ab_blocks import outlier_cap
from autobrrr.tuner.job_under_test import Steps, durations_ns

VARIES = 0.05  # of tokens, from the 5th to the 95th percentile, against their median
FEWEST_TO_VARY = 4
FEWEST_COUNTED = 2  # steps of a block whose tokens are known
FEWEST_FOR_A_LINE = 6
RECENT_PAIRS = 64

Durations = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBlock:
    """Neighbouring steps under one set of remedies.

    Attributes:
        steps: Nanoseconds of each step.
        counted: Nanoseconds of those of them whose tokens are known.
        tokens: Of the steps in `counted`, each.
    """

    steps: Durations
    counted: Durations
    tokens: NDArray[np.float64]


Pairs = Sequence[tuple[TokenBlock, TokenBlock]]
"""Neighbouring blocks: without what is compared, and with it."""


class ByLength:
    """The speed of neighbouring blocks as if all of their steps held as much, where lengths vary."""

    def __init__(self) -> None:
        self._recent: deque[tuple[TokenBlock, TokenBlock]] = deque(maxlen=RECENT_PAIRS)

    def log_speed_ratio(self, without: TokenBlock, with_it: TokenBlock) -> float | None:
        """log(speed with it / without it) of these two; None where lengths don't vary or are not seen."""
        if min(len(without.tokens), len(with_it.tokens)) < FEWEST_COUNTED:
            return None
        self._recent.append((without, with_it))
        if not vary(np.concatenate([each.tokens for pair in self._recent for each in pair])):
            return None
        found = at_one_length(self._recent)
        return found[-1] if len(found) == len(self._recent) else None


def block_of(records: Steps) -> TokenBlock:
    """The block that these records make up."""
    counted = records[(records["flags"] & ring_layout.PHASES != 0) & (records["tokens"] > 0)]
    tokens = np.asarray(counted["tokens"], dtype=np.float64)
    return TokenBlock(steps=durations_ns(records), counted=durations_ns(counted), tokens=tokens)


def tokens_a_sample(records: Steps) -> NDArray[np.float64]:
    """Of each of those steps that show both, shape [steps]."""
    known = records[(records["tokens"] > 0) & (records["samples"] > 0)]
    return np.asarray(known["tokens"] / samples_of(known), dtype=np.float64)


def samples_of(known: Steps) -> NDArray[np.float64]:
    """Samples of each of these steps, over all its backward calls for one update."""
    rounds = np.maximum(1, np.round(known["backwards"] / np.maximum(1, known["fires"])))
    return np.asarray(known["samples"] * rounds, dtype=np.float64)


def vary(lengths: NDArray[np.float64]) -> bool:
    """Whether one is longer than the other; false also while few have been seen."""
    if len(lengths) < FEWEST_TO_VARY:
        return False
    low, middle, high = np.quantile(lengths, (0.05, 0.5, 0.95))
    return bool(high - low > VARIES * middle)


def at_one_length(pairs: Pairs) -> list[float]:
    """From the time that a step takes with one number of tokens: both sides draw from the same samples."""
    base, candidate = ([pair[side] for pair in pairs] for side in (0, 1))
    tokens = mean_tokens([*base, *candidate])
    return log_ratios(at_length(base, tokens), at_length(candidate, tokens), 1.0)


def log_ratios(base: Sequence[float | None], candidate: Sequence[float | None], held: float) -> list[float]:
    """log(speed of the candidate / of the baseline) of those pairs of step times that are known.

    Args:
        held: What a step holds against the other side's.
    """
    pairs = zip(base, candidate, strict=True)
    return [math.log(held * its / mine) for its, mine in pairs if its and mine and min(its, mine) > 0]


def mean_tokens(blocks: Sequence[TokenBlock]) -> float:
    """Tokens of a step, over all steps that show them; 0 without one."""
    tokens = np.concatenate([each.tokens for each in blocks]) if blocks else np.empty(0)
    return float(tokens.mean()) if len(tokens) else 0.0


def at_length(blocks: Sequence[TokenBlock], tokens: float) -> list[float | None]:
    """Nanoseconds of a step with so many tokens, for each block; None where too few of its steps show theirs.

    The mean of a block is moved along the line by what its own mean number of tokens differs from the wanted
    one (the regression estimator of survey sampling: Cochran, Sampling Techniques, 3rd ed., chapter 7; it is
    right on average also where time is no line in tokens).
    """
    if not blocks:
        return []
    seen = np.concatenate([each.tokens for each in blocks])
    took = _capped(np.concatenate([each.counted for each in blocks]), seen)
    slope = _slope(took, seen)
    ends = np.cumsum([len(each.tokens) for each in blocks])
    return [
        None
        if len(block.tokens) < FEWEST_COUNTED
        else float(took[end - len(block.tokens) : end].mean() - slope * (block.tokens.mean() - tokens))
        for block, end in zip(blocks, ends, strict=True)
    ]


def _slope(took: Durations, tokens: Durations) -> float:
    """Nanoseconds a token, by least squares; 0 where that can't be told."""
    spread = float(tokens.var()) if len(tokens) >= FEWEST_FOR_A_LINE else 0.0
    return float(((tokens - tokens.mean()) * took).mean()) / spread if spread > 0 else 0.0


def _capped(took: Durations, tokens: Durations) -> Durations:
    """What lies far above the others at its length is brought down: another program ran, a file was written.

    The line for it is Tukey's resistant one, through the medians of the outer thirds: outliers don't bend it.
    """
    if len(took) < FEWEST_FOR_A_LINE:
        return took
    low, high = np.quantile(tokens, (1 / 3, 2 / 3))
    slope = 0.0
    if high > low:
        short, long = tokens <= low, tokens >= high
        run = np.median(tokens[long]) - np.median(tokens[short])
        slope = float((np.median(took[long]) - np.median(took[short])) / run)
    rest = took - slope * tokens
    return np.asarray(np.minimum(rest, outlier_cap(rest)) + slope * tokens, dtype=np.float64)
