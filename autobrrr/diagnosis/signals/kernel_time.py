"""Signal `kernel_time`: the part of the step that kernels of one kind take, by the clock of traced steps.

Matrix products above the ridge of this machine are compute; everything else moves tensors: memory.
"""

from __future__ import annotations

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.roofs import Roofs, roofs
from autobrrr.diagnosis.models.traced_kernels import KernelWork, kernel_work
from autobrrr.diagnosis.part_names import WORDS
from autobrrr.diagnosis.robust_stats import of_one
from autobrrr.diagnosis.signal_reading import Reading, abstention
from autobrrr.records import Regime

NAME = "kernel_time"
UNIT = "share of step"
SHOWN_KINDS = 3


def kernel_time(measured: Measurements) -> Reading:
    """Speaks for compute or memory at half of the step and twice the other, against either at a quarter."""
    if measured.traced is None and (measured.readonly or measured.outside):
        return abstention(NAME, UNIT, "a read-only session traces no step")
    found = roofs(measured)
    if not isinstance(found, Roofs):
        return abstention(NAME, UNIT, found)
    work = kernel_work(measured.traced)
    width = work.spread if isinstance(work, KernelWork) else 1.0
    shares: dict[Regime, float] = {"compute": found.share("compute"), "memory": found.share("memory")}
    leader = max(shares, key=lambda regime: shares[regime])
    share = min(1.0, shares[leader])
    other = min(shares, key=lambda regime: shares[regime])
    rival = shares[other]
    most = rival + found.unread  # of the other kind
    says: Regime | None = None
    if share >= thresholds.NAMED_AT and share >= thresholds.TIMES_THE_OTHER * most:
        says = leader
    against = tuple(one for one, part in shares.items() if part + found.unread <= thresholds.EXCLUDED_AT)
    return Reading(
        signal=NAME,
        value=share,
        unit=UNIT,
        note=(
            f"{of_one(share)} of a step is {_kinds(found, leader)}"
            + (f", {of_one(rival)} {WORDS[other]}" if rival > thresholds.EXCLUDED_AT else "")
            + (f", {of_one(found.unread)} kernels of unknown shape" if found.unread >= 0.01 else "")
        ),
        says=says,
        against=against,
        firm=share - width / 2 >= thresholds.NAMED_AT,
    )


def _kinds(found: Roofs, regime: Regime) -> str:
    kinds = [f"{kind} {of_one(share)}" for kind, share in found.by_kind(regime).items() if share >= 0.005]
    return WORDS[regime] + (f" ({', '.join(kinds[:SHOWN_KINDS])})" if len(kinds) > 1 else "")
