"""How much of the step must be the user's own code where forward can't be timed: in compiled jobs.

Two clocks, each of which alone could mean something else: the profiler's trace shows for how long no
operator and no compiled graph runs (which may be dispatch too), sampled stacks how often the thread
stands between the phases (where it may call operators). What the two overlap by is neither.
"""

from __future__ import annotations

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.sampled_frames import in_own_code, standing_at_least
from autobrrr.diagnosis.robust_stats import median, positive


def own_code_at_least(measured: Measurements) -> float | None:
    """The least share of the step that can be the user's own code; None where it isn't known, or nothing."""
    outside, standing = _without_operators(measured), standing_at_least(measured, in_own_code)
    if outside is None or standing is None:
        return None
    return positive(outside + standing - 1)


def _without_operators(measured: Measurements) -> float | None:
    """Of the profiled steps, less the loader, and less what getting to the operators can take at most."""
    window = measured.profile
    if window is None or window.status != "ok" or window.gaps or window.inside_share is None:
        return None
    step_ns = positive(median(window.profiled_step_ns))
    if step_ns is None or window.operators is None:
        return None
    dispatch = window.operators * thresholds.DISPATCH_NS / step_ns
    return 1 - window.inside_share - (window.loader_share or 0.0) - dispatch
