"""Step times over samples that differ in length: as if all steps held the same number of tokens.

In: blocks of one trial, with the tokens of those steps that show them. Out: for each block the mean time of a
step at a given number of tokens, from a line of time against tokens through all steps of the trial. A block
that drew short samples is no faster for that, and its noise is that of the machine, not of the draw.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autobrrr.relaunch.steps import Block, Durations

FEWEST_COUNTED = 2  # steps of a block whose tokens are known
FEWEST_FOR_A_LINE = 6
OUTLYING = 6  # interquartile ranges above the third quartile: as much, and no more


def mean_tokens(blocks: Sequence[Block]) -> float:
    """Tokens of a step, over all steps that show them; 0 without one."""
    tokens = np.concatenate([each.tokens for each in blocks]) if blocks else np.empty(0)
    return float(tokens.mean()) if len(tokens) else 0.0


def at_length(blocks: Sequence[Block], tokens: float) -> list[float | None]:
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
    apart = tokens - tokens.mean() if len(tokens) >= FEWEST_FOR_A_LINE else np.zeros(1)
    spread = float((apart**2).sum())
    return float((apart * took).sum()) / spread if spread > 0 else 0.0


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
    quarter, three_quarters = np.quantile(rest, (0.25, 0.75))
    cap = three_quarters + OUTLYING * (three_quarters - quarter)
    return np.asarray(np.minimum(rest, cap) + slope * tokens, dtype=np.float64)
