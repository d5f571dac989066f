"""When a part of the step leads: a regime, or who limits the step. In: shares by name, 0-1 of the step.

Both are needed to name one, of a live step and of a device's timeline alike.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from autobrrr.diagnosis import thresholds
from autobrrr.records import LIMIT_OF_REGIME, Shares


def measured_shares(shares: Shares) -> dict[str, float]:
    """The shares that are measured, by name."""
    return {name: share for name, share in msgspec.structs.asdict(shares).items() if share is not None}


def leads(regime: str, share: float, rival: float) -> bool:
    """Whether a regime takes half of the step and is clearly ahead of the next one."""
    times = thresholds.OVERHEAD_TIMES if regime == "overhead" else 1.0
    return share >= thresholds.NAMED_AT and share - rival >= thresholds.LEAD and share >= times * rival


def leads_all(regime: str, shares: Mapping[str, float]) -> bool:
    """Whether a regime leads every other one, and who it belongs to leads all others together.

    Memory at 53 % beside 40 % own code and 7 % dispatch is no clear lead of kernels over the host.
    """
    share = shares.get(regime)
    rivals = [other for name, other in shares.items() if name != regime]
    if share is None or not leads(regime, share, max(rivals, default=0.0)):
        return False
    held: dict[str, float] = {}
    for name, part in shares.items():
        limit = LIMIT_OF_REGIME.get(name, name)
        held[limit] = held.get(limit, 0.0) + part
    own = held.pop(LIMIT_OF_REGIME.get(regime, regime))
    return own - max(held.values(), default=0.0) >= thresholds.LEAD


def delayed_most(name: str, shares: Mapping[str, float], delay: float) -> dict[str, float]:
    """The shares of the step as they would be if all of a delay, a part of the time, lay in one of them."""
    left = 1 - min(delay, 0.99)
    return {
        other: max(0.0, share - delay) / left if other == name else share / left
        for other, share in shares.items()
    }


def leads_the_rest(name: str, delayed: Mapping[str, float], delay: float) -> bool:
    """On a busy machine the delay may lie in any part of the step; all the rest may be one rival."""
    least = delayed[name]
    return delay < thresholds.BUSY_AT or least - (1 - least) >= thresholds.LEAD


def limit_leads(limit: str, shares: Mapping[str, float]) -> bool:
    """Whether one who takes half of the step is clearly ahead of all others; shares by who they belong to."""
    share = shares.get(limit, 0.0)
    rivals = {name: other for name, other in shares.items() if name != limit}
    rival = max(rivals.values(), default=0.0)
    # Dispatch and kernels are told apart by an estimated cost: either must be well ahead of the other. What
    # may be both counts against kernels only: the remedies for dispatch cure it either way.
    apart = {"host": ("kernels",), "kernels": ("host", "short")}.get(limit, ())
    between = sum(rivals.get(name, 0.0) for name in apart)
    return (
        share >= thresholds.LIMIT_AT
        and share - rival >= thresholds.LEAD
        and share >= thresholds.OVERHEAD_TIMES * between
    )
