"""`gc.freeze`: what lives now is no longer looked at by the garbage collector, and it runs less often.

A collection of the oldest generation walks every object of the process: on a heap of a million objects a
step stands still for 50 ms and more. Nothing is collected here first, for that would be such a pause.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .registry import Option, Refused, Undo, remedy

if TYPE_CHECKING:
    from autobrrr.agent.job import Job

FROZEN_BY_PYTHON = 2_000  # CPython 3.12 starts with a few hundred frozen objects of its own


@remedy(
    "gc.freeze",
    treats=("overhead", "host"),
    reach="live",
    cls="bitwise",
    doc="Take today's objects out of garbage collection, and collect young ones less often.",
    targets=("gc",),
    options=(
        Option(
            name="threshold",
            kind="int",
            default=10_000,
            low=700,
            high=1_000_000,
            doc="New objects between two collections of the youngest generation.",
        ),
    ),
    rare=True,
)
def freeze(job: Job, options: Mapping[str, object]) -> Undo:
    threshold = options.get("threshold", 10_000)
    if isinstance(threshold, bool) or not isinstance(threshold, int) or not 700 <= threshold <= 1_000_000:
        raise Refused(f"threshold = {threshold!r}: a whole number from 700 to 1000000")
    if not gc.isenabled() or gc.get_threshold()[0] == 0:
        raise Refused("the job has switched garbage collection off")
    if gc.get_freeze_count() > FROZEN_BY_PYTHON:
        raise Refused("the job has frozen its objects already")
    before = gc.get_threshold()
    raised = (max(threshold, before[0]), *before[1:])
    gc.freeze()
    gc.set_threshold(*raised)

    def undo() -> None:
        # Back into the oldest generation: cheap, whatever their number.
        gc.unfreeze()
        if gc.get_threshold() == raised:
            gc.set_threshold(*before)

    return undo
