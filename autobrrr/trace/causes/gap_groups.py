"""Gaps that are alike: ended by the same kernel, in the same annotation, at the same line of Python.

In come a device's gaps and the host's timeline, out goes one group for each gap, so that idle time
can be said to lie in 6 gaps of 57 ms before one copy rather than in thousands.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from autobrrr.trace.causes.idle_causes import NOT_FOUND, HostTimeline
from autobrrr.trace.causes.launched_by import is_users_own, short_place
from autobrrr.trace.column_stats import median
from autobrrr.trace.reading.nanoseconds import Nanoseconds
from autobrrr.trace.reading.trace_columns import ANNOTATION, PYTHON, GpuColumns, Trace
from autobrrr.trace.timeline.idle_gaps import Gaps
from autobrrr.trace.timeline.launches import NO_LAUNCH, Rows
from autobrrr.trace.trace_records import GapGroup

_STEP = re.compile(r"^ProfilerStep[#*]|^(iteration|step)[ _#]*\d+$", re.IGNORECASE)
PLACE_FROM = 0.2  # of some idle time: a group that holds it is its place


class GapGroups(Struct, frozen=True, kw_only=True):
    """Which gaps belong together.

    Attributes:
        of_gap: the group of each gap, shape [gaps].
        kernel, annotation, python: of each group, indices into the trace's names; -1 where there is none.
    """

    of_gap: Rows
    kernel: Rows
    annotation: Rows
    python: Rows


def group_gaps(trace: Trace, timeline: HostTimeline, gpu: GpuColumns, gaps: Gaps) -> GapGroups:
    """Put the gaps into groups."""
    host, known = trace.host, np.flatnonzero(gaps.call != NO_LAUNCH)
    main = np.array([timeline.main_thread(each) for each in range(len(trace.threads))] or [0], np.int64)
    threads, called = main[host.thread[gaps.call[known]]], host.start[gaps.call[known]]
    kernel = gpu.name[gaps.operation].astype(np.int64)
    annotation, python = (np.full(len(gaps), NOT_FOUND, np.int64) for _ in range(2))
    for target, wanted in (
        (annotation, (host.kind == ANNOTATION) & ~trace.named(host.name, _STEP.search)),
        (python, (host.kind == PYTHON) & trace.named(host.name, is_users_own)),
    ):
        rows = timeline.around(threads, called, wanted)
        target[known[rows != NOT_FOUND]] = host.name[rows[rows != NOT_FOUND]]
    keys, of_gap = np.unique(np.stack([kernel, annotation, python], axis=1), axis=0, return_inverse=True)
    return GapGroups(of_gap=of_gap.reshape(-1), kernel=keys[:, 0], annotation=keys[:, 1], python=keys[:, 2])


def largest_groups(trace: Trace, groups: GapGroups, ns: Nanoseconds, most: int) -> list[GapGroup]:
    """The groups that hold most of some part of each gap, the largest first.

    Args:
        ns: The part of each gap that counts, shape [gaps].
    """
    total = int(ns.sum())
    if total == 0:
        return []
    sums = np.bincount(groups.of_gap, ns, len(groups.kernel)).astype(np.int64)
    found = []
    for group in np.argsort(-sums, kind="stable")[:most].tolist():
        if sums[group] <= 0:
            break
        own = ns[(groups.of_gap == group) & (ns > 0)]
        found.append(
            GapGroup(
                ended_by=trace.names[groups.kernel[group]],
                annotation=_named(trace, int(groups.annotation[group])),
                python=_placed(trace, int(groups.python[group])),
                count=len(own),
                idle_ns=int(sums[group]),
                median_ns=int(median(own)),
                share=int(sums[group]) / total,
            )
        )
    return found


def _named(trace: Trace, name: int) -> str | None:
    return trace.names[name] if name >= 0 else None


def _placed(trace: Trace, name: int) -> str | None:
    return short_place(trace.names[name]) if name >= 0 else None
