"""The part of a device's time that a verdict is about: without early steps, by regime.

Totals keep everything; a verdict on a job should not be one on its first launches, nor on the time in which
the device worked off what nobody recorded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct, structs

from autobrrr.diagnosis import thresholds
from autobrrr.trace.causes.gap_groups import PLACE_FROM, largest_groups
from autobrrr.trace.causes.host_causes import (
    DATA_LOADER,
    DISPATCHING,
    HELD_UP,
    LONG_OPERATOR,
    LONG_PYTHON,
    SYNCHRONISATION,
)
from autobrrr.trace.causes.idle_causes import LateCauses
from autobrrr.trace.column_stats import median
from autobrrr.trace.device.device_activity import activity, first_use_ns, unrecorded_until
from autobrrr.trace.device.device_work import DeviceWork
from autobrrr.trace.device.time_parts import time_parts_ns
from autobrrr.trace.reading.trace_columns import Flags, GpuColumns, among, chosen
from autobrrr.trace.timeline.idle_gaps import Gaps
from autobrrr.trace.timeline.trace_steps import StepMark

_MARKS = {
    "dispatch": DISPATCHING,
    "waits": (SYNCHRONISATION,),
    "loader": (DATA_LOADER,),
    "python": (LONG_PYTHON,),
    "python_once": (LONG_PYTHON,),
    "operators_on_host": (LONG_OPERATOR,),
    "held_up": (HELD_UP,),
}

# A device that several processes use in turn runs nothing of this one for a fixed time, again and again.
# Such gaps are equally long, begin after the launch call has returned, and fall between operations that
# elsewhere in the trace follow each other at once. A wait that belongs to the program (another stream, a
# graph whose kernels were not recorded) comes back at its own place.
EQUAL_WITHIN = 0.1  # of their median
_OWN_PLACE = 0.5  # of the times that two operations follow each other: from here on the gap is theirs


class Steady(Struct, frozen=True, kw_only=True):
    """Time by regime, and what else of the window a verdict reads."""

    steps: int
    left_out_ns: int  # of the span: early steps, work from before the recording
    parts_ns: dict[str, int]  # of `time_parts`; they sum to the time that is judged
    places: dict[str, str]  # the user's line that holds most of a part
    loader_idle_ended_by_copy: float | None  # of the idle time that a loader caused
    long_python_gaps: int
    long_python_largest: float | None  # share of the largest of them
    time_slices: int  # gaps in which another process has the device
    slice_ns: int | None  # their median


def steady_part(device: DeviceWork, steps: list[StepMark]) -> Steady:
    """Cut away the early steps, and divide what is left by regime."""
    gaps, late = device.judged, device.judged_late
    places = {name: _place(device, late, marks) for name, marks in _MARKS.items()}
    gpu, work = device.gpu, device.work
    shift, span_start = device.clock.shift_ns, gaps.span_start
    lasting = [mark for mark in steps if not mark.early]
    early = [mark for mark in steps if mark.early]
    begins = [until for until in (unrecorded_until(gaps, gpu),) if until is not None]
    if early and lasting:
        begins.append(min(mark.start for mark in lasting))
    if begins:
        begin = max(begins)
        kept = np.flatnonzero(gpu.start + shift >= begin)
        of_gaps = np.flatnonzero(gaps.start >= begin)
        if len(kept) > 1:
            gaps = structs.replace(chosen(gaps, of_gaps), span_start=begin)
            late, gpu, work = chosen(late, of_gaps), chosen(gpu, kept), chosen(work, kept)
    sliced, loading = time_sliced(gaps, device.gpu), first_use_ns(gaps, device.gpu)
    parts = time_parts_ns(
        gpu,
        work,
        activity(device.trace, gpu),
        gaps=gaps,
        late=late,
        sliced=sliced,
        first_use=loading,
        blocked_ns=device.waits.blocked_ns - int(device.waits.blocked.before(np.array([gaps.span_start]))[0]),
    )
    python = late.by_gap_ns[:, LONG_PYTHON]
    return Steady(
        steps=len(lasting),
        left_out_ns=gaps.span_start - span_start,
        parts_ns=parts,
        time_slices=int(sliced.sum()),
        slice_ns=int(median(gaps.after_launch[sliced])) if sliced.any() else None,
        places={name: place for name, place in places.items() if place is not None},
        loader_idle_ended_by_copy=_ended_by_copy(device, gaps, late),
        long_python_gaps=int((python > 0).sum()),
        long_python_largest=int(python.max()) / int(python.sum()) if python.any() else None,
    )


def _place(device: DeviceWork, late: LateCauses, marks: Sequence[int]) -> str | None:
    """The user's line that launches what most of some idle time waits for."""
    groups = largest_groups(device.trace, device.groups, late.by_gap_ns[:, list(marks)].sum(axis=1), 1)
    return groups[0].python if groups and groups[0].share >= PLACE_FROM else None


def _ended_by_copy(device: DeviceWork, gaps: Gaps, late: LateCauses) -> float | None:
    """How much of the loader's idle time ends with an input copy: the batch that was waited for."""
    loading = late.by_gap_ns[:, DATA_LOADER]
    total = int(loading.sum())
    if total == 0:
        return None
    copied = device.activity.host_to_device.start
    ends = gaps.end - device.clock.shift_ns
    hit = among(ends, copied)
    return int(loading[hit].sum()) / total


def time_sliced(gaps: Gaps, gpu: GpuColumns) -> Flags:
    """Which gaps another process seems to have; shape [gaps], all false where they are too few."""
    none = np.zeros(len(gaps), np.bool_)
    waits = np.flatnonzero(gaps.after_launch >= thresholds.SLICE_NS)
    if len(waits) < thresholds.SLICES_FROM:
        return none
    waits = waits[~_at_its_own_place(gaps, gpu, waits)]
    if len(waits) < thresholds.SLICES_FROM:
        return none
    length = gaps.after_launch[waits]
    usual = median(length)
    equal = waits[np.abs(length - usual) <= EQUAL_WITHIN * usual]
    if len(equal) < thresholds.SLICES_FROM:
        return none
    none[equal] = True
    return none


def _at_its_own_place(gaps: Gaps, gpu: GpuColumns, waits: np.ndarray) -> Flags:
    """Of some gaps, whether the two operations around them mostly have such a gap between them."""
    order = np.argsort(gpu.start, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    names = gpu.name[order].astype(np.int64)
    pairs = np.concatenate(([-1], names[:-1])) * (int(names.max()) + 2) + names
    around = pairs[place[gaps.operation[waits]]]
    often = dict(zip(*np.unique(pairs, return_counts=True), strict=True))
    waited = dict(zip(*np.unique(around, return_counts=True), strict=True))
    # Operations that follow each other once, as most do in a trace of one step, tell nothing.
    own = [waited[each] >= max(_OWN_PLACE * often[each], 2) for each in around.tolist()]
    return np.array(own, np.bool_)
