"""An interval for a mean that may be looked at after every observation, and stays valid.

In: log-ratios of pairs of blocks. Out: a two-sided confidence sequence for their mean with unknown
variance: the chance that it *ever* excludes the true mean is at most alpha.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autobrrr.records.gain_words import gain_words

EFFECT_SCALE = 1.0
"""Standard deviation of the prior on (mean / standard deviation). The sequence is valid for any
value; it is tightest where mean and standard deviation are of one size, as for a gain of 2 % under
blocks that scatter by 2 %."""

OUTLIER_SPREADS = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Mean and bounds, in the unit of the values (log-ratios)."""

    mean: float
    low: float
    high: float
    count: int

    @property
    def factor(self) -> float:
        """The mean as a factor on speed."""
        return math.exp(min(self.mean, 50.0))

    def speed(self) -> list[float]:
        """The bounds as factors on speed."""
        return [math.exp(min(self.low, 50.0)), math.exp(min(self.high, 50.0))]

    @property
    def words(self) -> str:
        """As factors on speed, for people: `1.03x [1.02–1.04]`."""
        return gain_words(self.factor, self.speed())


def mean_interval(values: Sequence[float], alpha: float, *, winsorise: bool = True) -> Interval | None:
    """The confidence sequence after these values; None while no bound can be given.

    The boundary is the Bayes factor of the t-test with a normal prior on the standardised mean
    and the right-Haar prior on the variance: a test martingale under every normal distribution
    with the tested mean, so that Ville's inequality bounds the chance that it ever passes 1/alpha.
    Source: Wang and Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian means
    with unknown variance", 2023 (arXiv:2310.03722), section 4; Lai, "On confidence sequences",
    Annals of Statistics 4(2), 1976. In closed form, with n values of mean m and standard deviation
    s, k = 1 + n * EFFECT_SCALE**2 and q = (sqrt(k) / alpha) ** (2 / n):
    m +- s * sqrt((n - 1) / n * (q - 1) / (1 - q / k)).

    With `winsorise`, values further than 4 robust standard deviations from the median are moved
    there first: pairs that another program ran into. Blocks are long against the autocorrelation
    of steps, and the order of arms is drawn, so that pairs are close to independent and symmetric
    without an effect.
    `benchmarks/tuning/tuner_figures.py` measures how often the interval is wrong.
    """
    count = len(values)
    if count < 3:
        return None
    settled = np.asarray(values, dtype=np.float64)
    if winsorise:
        settled = winsorised(settled)
    mean, deviation = float(settled.mean()), float(settled.std(ddof=1))
    k = 1 + count * EFFECT_SCALE**2
    q = (math.sqrt(k) / alpha) ** (2 / count)
    if q >= k:
        return None
    half = deviation * math.sqrt((count - 1) / count * (q - 1) / (1 - q / k))
    return Interval(mean=mean, low=mean - half, high=mean + half, count=count)


def winsorised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values, with outliers moved to 4 robust standard deviations from the median."""
    if len(values) < 6:
        return values
    middle = float(np.median(values))
    # Where half of the values lie together, their distance is no measure of the rest.
    spread = max(1.4826 * float(np.median(np.abs(values - middle))), float(values.std()) / 16)
    return np.clip(values, middle - OUTLIER_SPREADS * spread, middle + OUTLIER_SPREADS * spread)


@functools.cache
def student_quantile(p: float, freedom: int) -> float:
    """Student's t with this probability below it, 0.5 < p < 1, for a whole number of degrees of freedom.

    Abramowitz and Stegun, 26.7.3 and 26.7.4, with the angle found by halving.
    """

    def within(angle: float) -> float:
        """P(|T| < sqrt(freedom) * tan(angle))."""
        odd = freedom % 2
        term, total = 1.0, 0.0
        for k in range(odd + 2, freedom + 1, 2):  # one term for each power of the cosine, from `odd` on
            total += term * math.cos(angle) ** (k - 2)
            term *= (k - 1) / k
        inside = math.sin(angle) * total
        return 2 / math.pi * (angle + inside) if odd else inside

    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle) < 2 * p - 1 else (low, middle)
    return math.sqrt(freedom) * math.tan(low)
