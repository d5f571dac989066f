"""What several fresh starts of the winner and of the command as given come to together.

In: one duel for each start. Out: the interval that is reported.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autobrrr.relaunch.study.paired_comparison import ALPHA, Duel
from autobrrr.tuner.confidence_sequence import Interval, mean_interval, student_quantile

NOTICEABLE = 0.01


def closing(starts: Sequence[Duel]) -> Interval | None:
    """The gain over all starts, by typical steps; by all steps, where long ones make it clearly less.

    Loader processes that start with each epoch, a checkpoint that takes longer: none of that shows in a
    typical step. Where the mean over all steps lies below the interval of the typical ones, it is what
    counts, with Student's interval over the starts.
    """
    measured = [each for each in starts if each.values]
    found = joint([each.values for each in measured])
    if found is None or len(measured) < 2:
        return found
    by_all = np.array([np.mean(each.values) + each.long_steps for each in measured])
    middle = float(by_all.mean())
    if middle >= found.low - NOTICEABLE:
        return found
    half = max((found.high - found.low) / 2, _student_half(by_all))
    return Interval(mean=middle, low=middle - half, high=middle + half, count=found.count)


def joint(starts: Sequence[Sequence[float]]) -> Interval | None:
    """The interval over several fresh starts: never narrower than what differs from start to start.

    Pairs within one start share its memory layout and its luck: half of the interval is the larger one of the
    confidence sequence over all pairs and of Student's interval over the means of the starts.
    """
    pooled = mean_interval([value for values in starts for value in values], ALPHA)
    if pooled is None:
        return None
    means = np.array([np.mean(values) for values in starts if values])
    half = (pooled.high - pooled.low) / 2
    middle = float(means.mean())
    if len(means) > 1:
        half = max(half, _student_half(means))
    return Interval(mean=middle, low=middle - half, high=middle + half, count=pooled.count)


def _student_half(means: NDArray[np.float64]) -> float:
    """Half of Student's interval for the mean of these, shape [starts], two or more."""
    between = float(means.std(ddof=1)) / math.sqrt(len(means))
    return between * student_quantile(1 - ALPHA / 2, len(means) - 1)
