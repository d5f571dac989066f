"""From fresh starts to an interval: each start has its own luck, and that luck is what has to be measured.

In: for each start, log-ratios of `after` against two processes of `before`, and of those two against each
other. Out: an interval for the ratio and one for the A/A turns. Pairs within a start share its memory layout;
so starts are the observations, and A/A turns count towards their spread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autobrrr.tuner.confidence_sequence import Interval

ALPHA = 0.01
FIRST_LOOK = 3  # starts; then each time after half as many more


@dataclass(frozen=True, slots=True, kw_only=True)
class StartResult:
    """Means over the rounds of one start, as log-ratios of speed.

    Attributes:
        gain: `after` against the mean of both processes of `before`.
        luck: One process of `before` against the other.
    """

    gain: float
    luck: float


def is_look(starts: int) -> bool:
    """Whether the interval may be looked at after so many starts."""
    look = FIRST_LOOK
    while look < starts:
        look += math.ceil(look / 2)
    return look == starts


def spent(looks: int, alpha: float = ALPHA) -> float:
    """What the next look may be wrong with, after so many: all together come to alpha at most."""
    return float(alpha / 2 ** (looks + 1))


def gain_interval(starts: Sequence[StartResult], alpha: float) -> Interval:
    """Student's interval for the gain, two starts or more.

    Every process has a deviation of its own with variance v: `gain` has 3/2 v and `luck`, whose mean is
    zero by the symmetry of the two, 2 v. Both estimate v, with n - 1 and n degrees of freedom.
    """
    from scipy import stats

    gains = np.array([each.gain for each in starts])
    count = len(starts)
    half = stats.t.ppf(1 - alpha / 2, 2 * count - 1) * math.sqrt(1.5 * _variance(starts) / count)
    middle = float(gains.mean())
    return Interval(mean=middle, low=middle - half, high=middle + half, count=count)


def noise_half(starts: Sequence[StartResult], alpha: float) -> float:
    """Half of the interval of the A/A turns, a log-ratio."""
    from scipy import stats

    count = len(starts)
    return float(stats.t.ppf(1 - alpha / 2, 2 * count - 1) * math.sqrt(2 * _variance(starts) / count))


def _variance(starts: Sequence[StartResult]) -> float:
    gains = np.array([each.gain for each in starts])
    lucks = np.array([each.luck for each in starts])
    squares = ((gains - gains.mean()) ** 2).sum() / 1.5 + (lucks**2).sum() / 2
    return float(squares) / (2 * len(starts) - 1)
