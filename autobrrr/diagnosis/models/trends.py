"""What changes while a session watches: steps or memory that grow, long steps that come at a period.

In: durations of steps, looks at the process. Out: `records.Trend`s. A slope is that of all pairs of points
(Theil and Sen), and counts where its interval, by Kendall's count of pairs, excludes zero. Where each traced
step ran so many more operators than the one before, the times need only agree.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.records import Trend

POINTS = 30
DEVIATIONS = 3.3  # of Kendall's count: one in a thousand series without a trend
AGREES = 1.0  # the same where operators are known to grow: one in six
GOES_ON = 2.0  # the same in either half of the steps: one in forty
SETTLED_NS = 3_000_000_000  # after attach and after each measurement: memory that is ours
Series = NDArray[np.float64]


def trends(measured: Measurements) -> list[Trend]:
    """Those that are there."""
    found = (_steps(measured), _memory(measured), _period(measured), _evaluations(measured))
    return [one for one in found if one is not None]


def evaluation_share(measured: Measurements) -> float:
    """Of the time, what steps with an evaluation take beyond the usual one; of one alone nothing is said."""
    took = np.array([ns for _, ns in measured.evaluated])
    if len(took) < 2 or not len(measured.step_ns):
        return 0.0
    longer = np.maximum(0.0, took - np.median(measured.step_ns))
    return float(longer.sum() / (took.sum() + measured.step_ns.sum()))


def work_grows(measured: Measurements) -> bool:
    """Whether each traced step ran more operators than the one before, always by as many."""
    counts = measured.traced.operations if measured.traced is not None else []
    more: set[int] = set(np.diff(counts).tolist())
    return len(counts) >= thresholds.TRACED_STEPS and len(more) == 1 and min(more) > 0


def slope(x: Series, y: Series, deviations: float = DEVIATIONS) -> float:
    """The slope; 0 where its interval, of so many deviations, holds zero."""
    count = len(x)
    later, earlier = np.tril_indices(count, -1)
    apart = x[later] - x[earlier]
    slopes = np.sort((y[later] - y[earlier])[apart > 0] / apart[apart > 0])
    within = deviations * np.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low, high = int((len(slopes) - within) / 2), int((len(slopes) + within) / 2)
    if low < 0 or high >= len(slopes):
        return 0.0
    return float(np.median(slopes)) if slopes[low] > 0 or slopes[high] < 0 else 0.0


def _steps(measured: Measurements) -> Trend | None:
    took = measured.step_ns.astype(np.float64)
    if len(took) < 2 * thresholds.TREND_POINTS:
        return None
    parts = np.array_split(took, min(POINTS, len(took) // 2))
    middles = np.cumsum([len(part) for part in parts]) - np.array([len(part) / 2 for part in parts])
    typical = np.array([np.median(part) for part in parts])
    a_step_ns = slope(middles, typical, AGREES if work_grows(measured) else DEVIATIONS)
    # Another program that comes makes steps longer at once: growth goes on in either half.
    halves = zip(np.array_split(middles, 2), np.array_split(typical, 2), strict=True)
    if not work_grows(measured) and not all(slope(x, y, GOES_ON) > 0 for x, y in halves):
        return None
    if a_step_ns <= 0 or a_step_ns * len(took) < thresholds.GROWS_AT * typical[0]:
        return None
    return Trend(
        what="step", kind="grows", per_step=a_step_ns, first=float(typical[0]), last=float(typical[-1])
    )


def _memory(measured: Measurements) -> Trend | None:
    """Growth at most looks after our measurements, or at nearly all looks: our own memory comes at once.

    Before its first step a job imports and loads, and within a long one memory comes and goes.
    """
    held, count = measured.held, len(measured.step_ns)
    began_ns = max(held[0][0], measured.measured_ns) + SETTLED_NS if held else 0
    found = _grows(measured, [one for one in held if one[0] >= began_ns], thresholds.MEMORY_RISES)
    looks = [one for one in held if one[0] >= held[-1][0] - int(measured.step_ns.sum())]
    if found is None and count >= len(looks) >= 2 * thresholds.TREND_POINTS:
        found = _grows(measured, looks, thresholds.MEMORY_RISES_ALWAYS)
    return found


def _grows(measured: Measurements, looks: Sequence[tuple[int, int]], least: float) -> Trend | None:
    if len(looks) < thresholds.TREND_POINTS or not len(measured.step_ns):
        return None
    t, held = np.array(looks, dtype=np.float64).T
    a_ns = slope(t, held)
    grown, rises = a_ns * (t[-1] - t[0]), float(np.mean(np.diff(held) > 0))
    if grown < thresholds.MEMORY_GROWS_BYTES or rises < least:
        return None
    each = a_ns * float(measured.step_ns.mean())
    return Trend(what="memory", kind="grows", per_step=each, first=float(held[0]), last=float(held[-1]))


def _period(measured: Measurements) -> Trend | None:
    took = measured.step_ns
    if len(took) < thresholds.STEPS_FIRM:
        return None
    usual = float(np.median(took))
    long = np.flatnonzero(took > thresholds.PERIODIC_TIMES * usual)
    gaps = np.diff(long)
    every = int(np.median(gaps)) if len(gaps) else 0
    # Long steps between them may have been left out.
    if len(gaps) < thresholds.PERIODS or every < 2 or np.mean(gaps % every == 0) < thresholds.REGULAR_AT:
        return None
    return Trend(what="step", kind="periodic", every=every, first=usual, last=float(np.median(took[long])))


def _evaluations(measured: Measurements) -> Trend | None:
    """They come when the script says so: two are enough for a period."""
    if evaluation_share(measured) < thresholds.SETTING_AT:
        return None
    number, took = np.array(measured.evaluated).T
    every, usual = int(np.median(np.diff(number))), float(np.median(measured.step_ns))
    return Trend(what="step", kind="periodic", every=every, first=usual, last=float(np.median(took)))
