"""Step time against batch size, from the replays of a recorded step: t(B) = fixed + per_sample * B.

t(B) is a whole step, by the lower quartile of its replays. Other processes only ever lengthen a replay: a
size counts where its fastest quarter agrees, whatever the slower ones took. Guards: enough such sizes,
linearity. The prediction for 2B is shown only where they pass. Two sizes, B and 2B, are enough for it and for
a fixed part that is far from every limit: nothing checks their line.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import once
from autobrrr.diagnosis.robust_stats import interquartile, of_one, positive, quantile
from autobrrr.records import BatchPoint, BatchProbe, ShadowPoint, ShadowProbe


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFit:
    """A fit that passed its guards. `share` is the fixed part of t(B), at least."""

    share: float
    error: float  # largest relative distance of a point from the line; with two sizes what it may be
    replays: int  # of the point with fewest
    probe: BatchProbe

    @property
    def enough(self) -> bool:
        """Replays for a firm reading; of a long step two, since each is a mean over much time already."""
        step_ns = max(point.step_ns for point in self.probe.points)
        return self.replays >= (2 if step_ns >= thresholds.LONG_STEP_NS else 3)


@once
def fit_batch(probe: ShadowProbe | None) -> BatchFit | BatchProbe:
    """The fit, or the probe as it stands with the reason why there is none."""
    if probe is None:
        return BatchProbe(status="abstained", why="no replay yet: it comes after traced steps")
    if probe.status == "abstained":
        return BatchProbe(
            status="abstained", why=probe.why or "the probe was not possible", batch=probe.batch
        )
    return _fit(probe)


def _fit(probe: ShadowProbe) -> BatchFit | BatchProbe:
    """The fit; where a single sample bends the line, that of the other sizes.

    One sample takes other kernels (a product by a vector) than several do, and is not on their line.
    """
    found = _line(probe)
    others = [point for point in probe.points if point.batch > 1]
    bent = isinstance(found, BatchProbe) and len(found.points) > len(others) >= 2
    if not bent or not {probe.batch, 2 * (probe.batch or 0)} <= {point.batch for point in others}:
        return found
    again = _line(msgspec.structs.replace(probe, points=others))
    return again if isinstance(again, BatchFit) else found


def _line(probe: ShadowProbe) -> BatchFit | BatchProbe:
    times, why = step_times(probe, two_sizes=True)
    points = [BatchPoint(batch=batch, step_ns=int(ns)) for batch, ns in sorted(times.items())]
    if why is not None or probe.batch is None:
        return BatchProbe(
            status="abstained", why=why or "the batch is not known", batch=probe.batch, points=points
        )
    batches = np.array(sorted(times), dtype=np.float64)
    steps_ns = np.array([times[int(batch)] for batch in batches])
    # Relative weights: a point counts by its relative error, as the timer's noise does.
    per_sample_ns, fixed_ns = (float(term) for term in np.polyfit(batches, steps_ns, 1, w=1 / steps_ns))
    error = float(np.max(np.abs(fixed_ns + per_sample_ns * batches - steps_ns) / steps_ns))
    if not error <= thresholds.LINEAR_ERROR:
        why = (
            f"step time does not grow in a straight line with the batch: one size is {of_one(error)} off it, "
            f"at most {of_one(thresholds.LINEAR_ERROR)} is allowed"
        )
        return BatchProbe(status="abstained", why=why, batch=probe.batch, points=points)
    share = min(1.0, max(0.0, fixed_ns / times[probe.batch]))
    ratio, interval = _doubled(probe, times)
    told = BatchProbe(
        status="ok", batch=probe.batch, points=points, ratio_2x=ratio, ratio_2x_interval=interval
    )
    if len(times) < thresholds.PROBE_POINTS:
        error = thresholds.TWO_SIZES_ERROR
        if thresholds.EXCLUDED_AT - error < share < thresholds.NAMED_AT + error:
            why = f"two batch sizes can't decide it: about {of_one(share)} of the step does not grow"
            return msgspec.structs.replace(told, why=why)
    return BatchFit(
        share=share,
        error=error,
        replays=min(len(point.shadow_ns) for point in probe.points if point.batch in times),
        probe=msgspec.structs.replace(
            told, fixed_ns=int(max(0.0, fixed_ns)), per_sample_ns=max(0.0, per_sample_ns)
        ),
    )


def step_times(probe: ShadowProbe, *, two_sizes: bool = False) -> tuple[dict[int, float], str | None]:
    """t(B) of every size that counts, and the guard that fails.

    Args:
        two_sizes: B and 2B alone are enough.
    """
    times = {  # lower quartiles of the replays at each batch size whose fastest agree
        batch: quartile_ns
        for batch, (least_ns, quartile_ns) in _fastest(probe).items()
        if quartile_ns / least_ns - 1 <= thresholds.REPLAYS_AGREE
    }
    if probe.batch is None or probe.batch not in times:
        return {}, _apart(probe) or "the job's own batch size was not replayed"
    least = 2 if two_sizes and 2 * probe.batch in times else thresholds.PROBE_POINTS
    if len(times) < least:
        return times, _apart(probe) or f"{len(times)} of {least} batch sizes measured"
    return times, None


def _apart(probe: ShadowProbe) -> str | None:
    """What is said of a size whose fastest replays don't agree."""
    apart = max((quartile_ns / least_ns - 1 for least_ns, quartile_ns in _fastest(probe).values()), default=0)
    if apart <= thresholds.REPLAYS_AGREE:
        return None
    return (
        f"replays of one batch size differ by {of_one(apart)}, even the fastest of them "
        f"(at most {of_one(thresholds.REPLAYS_AGREE)} is allowed)"
    )


def _fastest(probe: ShadowProbe) -> dict[int, tuple[float, float]]:
    """The fastest replay at each batch size, and the lower quartile."""
    found = {}
    for point in probe.points:
        least_ns, quartile_ns = (positive(quantile(point.shadow_ns, q)) for q in (0.0, 0.25))
        if point.batch > 0 and least_ns is not None and quartile_ns is not None:
            found[point.batch] = (least_ns, quartile_ns)
    return found


def _doubled(probe: ShadowProbe, times: dict[int, float]) -> tuple[float | None, list[float] | None]:
    """t(2B) / t(B), give or take the standard errors of the two replays."""
    points = {point.batch: point for point in probe.points}
    batch = probe.batch or 0
    single, double = points.get(batch), points.get(2 * batch)
    if single is None or double is None or 2 * batch not in times:
        return None, None
    error = (_standard_error_ns(single) + _standard_error_ns(double)) / times[batch]
    ratio = times[2 * batch] / times[batch]
    return ratio, [max(0.0, ratio - error), ratio + error]


def _standard_error_ns(point: ShadowPoint) -> float:
    """Of a quantile near the middle; 1.35 IQR widths make one standard deviation."""
    width = interquartile(point.shadow_ns) or 0.0
    return float(1.25 * width / 1.35 / max(1, len(point.shadow_ns)) ** 0.5)
