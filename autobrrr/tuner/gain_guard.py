"""Looks closer where what was kept may no longer pay, and undoes it where it has turned bad.

A slow stretch alone proves nothing, jobs change by themselves. So a suspicion (`PostTuningWatch`) only starts
a short comparison of all-on against all-off; that decides.
"""

from __future__ import annotations

import math

from autobrrr.records import Reverted
from autobrrr.tuner.arm_switch import ArmSwitch
from autobrrr.tuner.comparison import Comparing, compare
from autobrrr.tuner.job_under_test import JobUnderTest, NotApplied
from autobrrr.tuner.stop_rules import proof

CHECK_NS = 10_000_000_000


def undo_losses(
    bench: JobUnderTest, board: ArmSwitch, step_ns: float, *, budget_ns: int = CHECK_NS
) -> list[Reverted]:
    """Compare all-on with all-off now; undo everything where on is the slower. Blocks meanwhile.

    Args:
        board: Whose active remedies are guarded.
        step_ns: Mean step with all of them off, from the closing run of the tuning.

    Returns:
        What was undone.
    """
    on = tuple(applied.choice for applied in board.active)
    if not on:
        return []
    asked = Comparing(
        without=(),
        with_it=on,
        rule=proof(0.0, math.inf),
        deadline_ns=bench.now_ns() + budget_ns,
        step_ns=step_ns,
    )
    try:
        found = compare(bench, board, asked)
    except NotApplied:
        found = None
    if found is None or found.decision not in ("hopeless", "harmful"):
        return [Reverted(remedy=each.remedy, why=why) for each, why in board.hold(on).items()]
    board.hold(())
    return [Reverted(remedy=choice.remedy, why=f"the guard reverted it: {found.why}") for choice in on]
