"""The part of a device's time that a verdict is about: without early steps, by regime.

Totals keep everything; a verdict on a job should not be one on its first launches, nor on the time in which
the device worked off what nobody recorded.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct, structs

from autobrrr.diagnosis import thresholds
from autobrrr.trace.causes.host_causes import DATA_LOADER, LONG_PYTHON
from autobrrr.trace.causes.host_places import PLACE_FROM, largest_groups
from autobrrr.trace.causes.idle_causes import LateCauses
from autobrrr.trace.device.device_work import DeviceWork
from autobrrr.trace.device.time_parts import PARTS, activity, first_use_ns, time_parts_ns, unrecorded_until
from autobrrr.trace.reading.trace_columns import Flags, GpuColumns, chosen, median
from autobrrr.trace.timeline.idle_gaps import Gaps
from autobrrr.trace.timeline.trace_steps import StepMark

# A device that several processes use in turn runs nothing of this one for a fixed time, again and again.
# Such gaps are equally long, begin after the launch call has returned, and fall between operations that
# elsewhere in the trace follow each other at once. A wait that belongs to the program (another stream, a
# graph whose kernels were not recorded) comes back at its own place.
EQUAL_WITHIN = 0.1  # of their median
_OWN_PLACE = 0.5  # of the times that two operations follow each other: from here on the gap is theirs


class Steady(Struct, frozen=True, kw_only=True):
    """Time by regime, and what else of the window a verdict reads."""

    left_out_ns: int  # of the span: early steps, work from before the recording
    parts_ns: dict[str, int]  # of `time_parts`; they sum to the time that is judged
    places: dict[str, str]  # the user's line that holds most of a part
    loader_idle_ended_by_copy: float | None  # of the idle time that a loader caused
    long_python_ns: list[int]  # of each gap with long stretches of Python
    time_slices: int  # gaps in which another process has the device
    slice_ns: int | None  # their median


def steady_part(device: DeviceWork, steps: list[StepMark]) -> Steady:
    """Cut away the early steps, and divide what is left by regime."""
    gaps, late = device.judged, device.judged_late
    places = _places(device, late)
    gpu, work = device.gpu, device.work
    shift, span_start = device.clock.shift_ns, gaps.span_start
    lasting = [mark.start for mark in steps if not mark.early]
    begins = [until for until in (unrecorded_until(gaps, gpu),) if until is not None]
    if 0 < len(lasting) < len(steps):
        begins.append(min(lasting))
    if begins:
        begin = max(begins)
        kept = np.flatnonzero(gpu.start + shift >= begin)
        of_gaps = np.flatnonzero(gaps.start >= begin)
        if len(kept) > 1:
            gaps = structs.replace(chosen(gaps, of_gaps), span_start=begin)
            late, gpu, work = chosen(late, of_gaps), chosen(gpu, kept), chosen(work, kept)
    sliced, blocked = time_sliced(gaps, device.gpu), device.blocked
    parts = time_parts_ns(
        activity(device.trace, gpu, work),
        gaps,
        late,
        sliced=sliced,
        first_use=first_use_ns(gaps, device.gpu),
        blocked_ns=blocked.length_ns() - int(blocked.before(np.array([gaps.span_start]))[0]),
    )
    python = late.by_gap_ns[:, LONG_PYTHON]
    return Steady(
        left_out_ns=gaps.span_start - span_start,
        parts_ns=parts,
        time_slices=int(sliced.sum()),
        slice_ns=int(median(gaps.after_launch[sliced])) if sliced.any() else None,
        places=places,
        loader_idle_ended_by_copy=_ended_by_copy(device, gaps, late),
        long_python_ns=python[python > 0].tolist(),
    )


def _places(device: DeviceWork, late: LateCauses) -> dict[str, str]:
    """Of each part the user's line that launches what most of its idle time waits for, where there is one."""
    found = {}
    for name, part in PARTS.items():
        ns = late.by_gap_ns[:, part.marks].sum(axis=1)
        groups = largest_groups(device.trace, device.groups, ns, 1)
        if groups and groups[0].share >= PLACE_FROM and groups[0].python is not None:
            found[name] = found[part.once or name] = groups[0].python
    return found


def _ended_by_copy(device: DeviceWork, gaps: Gaps, late: LateCauses) -> float | None:
    """How much of the loader's idle time ends with an input copy: the batch that was waited for."""
    loading = late.by_gap_ns[:, DATA_LOADER]
    total = int(loading.sum())
    if total == 0:
        return None
    copied = device.activity.parts["copies_in"].start
    ends = gaps.end - device.clock.shift_ns
    hit = np.isin(ends, copied)
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
