"""From fresh starts to an interval: each start has its own luck, and that luck is what has to be measured.

In: for each start, log-ratios of `after` against `before`, and of two processes of `before` against each
other where there are two. Out: an interval for the ratio and one for the A/A turns. Pairs within a start
share its memory layout; so starts are the observations, and A/A turns count towards their spread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autobrrr.tuner.confidence_sequence import Interval, mean_interval, student_quantile

ALPHA = 0.01
FEWEST_STARTS = 2
NOTICEABLE = 0.01
FIRST_LOOK = 3  # starts; then each time after half as many more


@dataclass(frozen=True, slots=True, kw_only=True)
class StartResult:
    """Means over the rounds of one start, as log-ratios of speed.

    Attributes:
        gain: `after` against the mean of the processes of `before`.
        luck: One process of `before` against the other; None: there was one.
        long_steps: What is to be added to the gain for the steps that are far longer than others.
        pairs: The gain of each round, where there is no luck to go by.
    """

    gain: float
    luck: float | None = None
    long_steps: float = 0.0
    pairs: tuple[float, ...] = ()


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
    of `after` differ by more than those of `before`, gains scatter by more, and that counts. Without luck
    there are the gains alone.
    """
    gains = np.array([each.gain for each in starts])
    count, scatter = len(starts), float(gains.var(ddof=1))
    if any(each.luck is None for each in starts):
        half = student_quantile(1 - alpha / 2, count - 1) * math.sqrt(scatter / count)
    else:
        half = _half(starts, alpha, max(1.5 * _variance(starts), scatter))
    middle = float(gains.mean())
    return Interval(mean=middle, low=middle - half, high=middle + half, count=count)


def with_long_steps(starts: Sequence[StartResult], alpha: float) -> Interval:
    """The gain by usual steps; by all steps, where long ones make it clearly less.

    Loader processes that start with each epoch, a checkpoint that takes longer: none of that shows in a usual
    step. Where the mean over all steps lies below the interval of the usual ones, it is what counts. Few
    starts may be alike by luck: no interval is narrower than the one over all pairs.
    """
    pooled = mean_interval([gain for each in starts for gain in each.pairs], alpha)
    usual = _no_narrower(gain_interval(starts, alpha), pooled)
    by_all = gain_interval([replace(each, gain=each.gain + each.long_steps) for each in starts], alpha)
    return _no_narrower(by_all, usual) if by_all.mean < usual.low - NOTICEABLE else usual


def _no_narrower(interval: Interval, other: Interval | None) -> Interval:
    half = max((each.high - each.low) / 2 for each in (interval, other or interval))
    return replace(interval, low=interval.mean - half, high=interval.mean + half)


def noise_half(starts: Sequence[StartResult], alpha: float) -> float:
    """Half of the interval of the A/A turns, a log-ratio."""
    return _half(starts, alpha, 2.0 * _variance(starts))


def _half(starts: Sequence[StartResult], alpha: float, variance: float) -> float:
    """Half of Student's interval of a mean over starts, each with this variance."""
    count = len(starts)
    return student_quantile(1 - alpha / 2, 2 * count - 1) * math.sqrt(variance / count)


def _variance(starts: Sequence[StartResult]) -> float:
    gains = np.array([each.gain for each in starts])
    lucks = np.array([each.luck or 0.0 for each in starts])
    squares = ((gains - gains.mean()) ** 2).sum() / 1.5 + (lucks**2).sum() / 2
    return float(squares) / (2 * len(starts) - 1)
