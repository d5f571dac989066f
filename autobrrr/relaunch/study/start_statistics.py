"""From fresh starts to an interval: each start has its own luck, and that luck is what has to be measured.

In: for each start, log-ratios of `after` against `before`, and of two processes of `before` against each
other. Out: an interval for the ratio and one for the A/A turns. Pairs within a start share its memory
layout; so starts are the observations, and A/A turns count towards their spread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from autobrrr.tuner.confidence_sequence import Interval, student_quantile

ALPHA = 0.01
FEWEST_STARTS = 2
FIRST_LOOK = 3  # starts; then each time after half as many more


@dataclass(frozen=True, slots=True, kw_only=True)
class StartResult:
    """Means over the rounds of one start, as log-ratios of speed.

    Attributes:
        gain: `after` against the mean of the processes of `before`.
        luck: One process of `before` against the other.
    """

    gain: float
    luck: float


@dataclass(slots=True)
class StartRule:
    """When no more starts are needed.

    Attributes:
        gate: None: `after` is to be faster. Else: slower by no more than this share.
        interval: As it was last looked at; None: there were too few starts.
    """

    gate: float | None = None
    interval: Interval | None = None
    _looks: int = field(default=0)

    def is_over(self, starts: Sequence[StartResult], *, is_last: bool) -> bool:
        """Whether to stop after these starts; `is_last`: there is no time for one more."""
        count = len(starts)
        if count >= FEWEST_STARTS and (is_last or is_look(count)):
            self.interval = gain_interval(starts, spent(self._looks))
            self._looks += 1
        return (is_look(count) and self.is_decided) or (is_last and count >= FEWEST_STARTS)

    @property
    def is_decided(self) -> bool:
        """The interval lies on one side of what was asked."""
        if self.interval is None:
            return False
        if self.gate is None:
            return self.interval.low > 0 or self.interval.high < 0
        least = math.log1p(-self.gate)
        return self.interval.low > least or self.interval.high < least


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
    zero by the symmetry of the two, 2 v. Both estimate v, with n - 1 and n degrees of freedom. Where starts
    of `after` differ by more than those of `before`, gains scatter by more, and that counts.
    """
    gains = np.array([each.gain for each in starts])
    half = _half(starts, alpha, max(1.5 * _variance(starts), float(gains.var(ddof=1))))
    middle = float(gains.mean())
    return Interval(mean=middle, low=middle - half, high=middle + half, count=len(starts))


def noise_half(starts: Sequence[StartResult], alpha: float) -> float:
    """Half of the interval of the A/A turns, a log-ratio."""
    return _half(starts, alpha, 2.0 * _variance(starts))


def _half(starts: Sequence[StartResult], alpha: float, variance: float) -> float:
    """Half of Student's interval of a mean over starts, each with this variance."""
    count = len(starts)
    return student_quantile(1 - alpha / 2, 2 * count - 1) * math.sqrt(variance / count)


def _variance(starts: Sequence[StartResult]) -> float:
    gains = np.array([each.gain for each in starts])
    lucks = np.array([each.luck for each in starts])
    squares = ((gains - gains.mean()) ** 2).sum() / 1.5 + (lucks**2).sum() / 2
    return float(squares) / (2 * len(starts) - 1)
