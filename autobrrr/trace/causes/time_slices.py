"""Gaps in which another process has the device: equal waits after the launch, anywhere in the program.

A device that several processes use in turn runs nothing of this one for a fixed time, again and
again. Such gaps are equally long, begin after the launch call has returned, and fall between
operations that elsewhere in the trace follow each other at once. A wait that belongs to the
program (another stream, a graph whose kernels were not recorded) comes back at its own place.
"""

from __future__ import annotations

import numpy as np

from autobrrr.diagnosis import thresholds
from autobrrr.trace.column_stats import median
from autobrrr.trace.reading.trace_columns import Flags, GpuColumns
from autobrrr.trace.timeline.idle_gaps import Gaps

EQUAL_WITHIN = 0.1  # of their median
_OWN_PLACE = 0.5  # of the times that two operations follow each other: from here on the gap is theirs


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
