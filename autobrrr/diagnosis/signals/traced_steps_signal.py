"""Signal `traced_steps`: the part of the step that kernels leave to Python and the dispatcher.

K is the kernel work of real steps under torch's CPU profiler; forward, backward and optimizer
less their K is overhead; so is what counts as K in calls too short to be kernels, where the step doesn't
grow with the batch.
"""

from __future__ import annotations

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.cpu_delay import is_oversubscribed
from autobrrr.diagnosis.models.shares import overhead_share, short_dispatch, step_parts
from autobrrr.diagnosis.models.traced_kernels import KernelWork, kernel_work
from autobrrr.diagnosis.robust_stats import of_one
from autobrrr.diagnosis.signal_reading import Reading, abstention, weighed
from autobrrr.records import Regime

NAME = "traced_steps"
UNIT = "share of step"


def traced_steps(measured: Measurements) -> Reading:
    """Speaks for overhead at half of the step, against it at a quarter."""
    if measured.traced is None and (measured.readonly or measured.outside):
        return abstention(NAME, UNIT, "a read-only session traces no step")
    work = kernel_work(measured.traced)
    if not isinstance(work, KernelWork):
        return abstention(NAME, UNIT, work)
    parts = step_parts(measured)
    share = None if parts is None else overhead_share(measured, parts)
    if parts is None or share is None:
        return _whole_step(work, is_oversubscribed(measured))
    short = short_dispatch(measured, parts)
    counted = f" ({work.operations:.0f} operators)" if work.operations else ""
    note = (
        f"kernels work {of_one(work.share)} of a traced step{counted}; "
        f"they leave {of_one(share)} of it idle in forward, backward and optimizer"
        + (f"; {of_one(short)} are calls too short to be kernels" if short else "")
    )
    surely, share = share, min(1.0, share + short)
    # In threads that wait for each other, what looks like a kernel may be no work.
    excludes, firm = not is_oversubscribed(measured), surely - work.spread / 2 >= thresholds.NAMED_AT
    return weighed(NAME, UNIT, "overhead", share, note, firm=firm, excludes=excludes)


def _whole_step(work: KernelWork, crowded: bool) -> Reading:
    """Loading or less work can't be told from overhead; kernels can still exclude both."""
    left = 1 - work.share
    why = "; its phases were not measured"
    if work.at_least:
        why = " at most: traced steps were faster than plain ones, and did less"
    excludes = left <= thresholds.EXCLUDED_AT and not crowded
    against: tuple[Regime, ...] = ("overhead",) if excludes else ()
    return Reading(
        signal=NAME,
        value=left,
        unit=UNIT,
        note=f"kernels leave {of_one(left)} of a traced step{why}",
        against=against,
        abstained=not against,
    )
