"""The garbage collector out of the way: `gc.freeze`, `gc.threshold`.

A collection of the oldest generation walks every object of the process: on a heap of a million objects a
step stands still for 50 ms and more. Nothing is collected here first, for that would be such a pause.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial

from ...live_torch.live_job import Job
from ..registry import Option, Refused, Undo, remedy, switch

FROZEN_BY_PYTHON = 2_000  # CPython 3.12 starts with a few hundred frozen objects of its own


def _threshold(default: int) -> Option:
    return Option(
        name="threshold",
        kind="int",
        default=default,
        low=700,
        high=1_000_000,
        doc="New objects between two collections of the youngest generation.",
    )


_of_collections = partial(
    remedy, treats=("overhead", "host"), reach="live", cls="bitwise", targets=("gc",), rare=True
)


@_of_collections(
    "gc.freeze",
    doc="Take today's objects out of garbage collection, and collect young ones less often.",
    options=(_threshold(10_000),),
    only_predicted=True,
)
def freeze(job: Job, options: Mapping[str, object]) -> Undo:
    wanted = _wanted(options, 10_000)
    if gc.get_freeze_count() > FROZEN_BY_PYTHON:
        raise Refused("the job has frozen its objects already")
    gc.freeze()
    with ExitStack() as undo:
        undo.callback(_less_often(wanted))
        undo.callback(gc.unfreeze)  # back into the oldest generation: cheap, whatever their number
        return undo.pop_all().close


@_of_collections(
    "gc.threshold",
    doc="Collect young objects less often; every object stays under garbage collection.",
    options=(_threshold(50_000),),
    only_named=True,
)
def threshold(job: Job, options: Mapping[str, object]) -> Undo:
    wanted = _wanted(options, 50_000)
    if gc.get_threshold()[0] >= wanted:
        raise Refused(f"the job collects only every {gc.get_threshold()[0]} new objects already")
    return _less_often(wanted)


def _wanted(options: Mapping[str, object], default: int) -> int:
    if not gc.isenabled() or gc.get_threshold()[0] == 0:
        raise Refused("the job has switched garbage collection off")
    return int(str(options.get("threshold", default)))


def _less_often(wanted: int) -> Undo:
    return switch(
        lambda: gc.get_threshold()[0],
        lambda count: gc.set_threshold(count, *gc.get_threshold()[1:]),
        max(wanted, gc.get_threshold()[0]),
    )
