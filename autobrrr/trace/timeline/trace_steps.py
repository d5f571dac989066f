"""Steps: what the profiler marked, else from one optimizer step to the next.

Early steps (first launches, tuning of algorithms) stay in every total and leave the per-step
statistics; so does a step that the window cuts.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Literal

import numpy as np
from msgspec import Struct, structs

from autobrrr.records import StepStats
from autobrrr.trace.column_stats import median, quantile
from autobrrr.trace.reading.trace_columns import KERNEL, GpuColumns, Trace
from autobrrr.trace.timeline.idle_gaps import Gaps
from autobrrr.trace.timeline.intervals import Union
from autobrrr.trace.trace_records import IdleParts, StepDevice, TraceStep

_PROFILER_STEP = re.compile(r"^ProfilerStep")
_OPTIMIZER_STEP = re.compile(r"^Optimizer\.step#")
EARLY_AT = 1.3  # a leading step is early where it takes longer than this times the median of the rest
_MOST_STEPS = 2000


class StepMark(Struct, frozen=True, kw_only=True):
    """When a step lasted, by the host's clock."""

    name: str
    start: int
    end: int
    pid: str
    source: Literal["profiler", "optimizer"]
    early: bool = False


def find_steps(trace: Trace) -> list[StepMark]:
    """All steps of all processes, by start; at most 2000."""
    found = _named(trace, _PROFILER_STEP)
    marks = [
        StepMark(name=name, start=start, end=end, pid=pid, source="profiler")
        for name, start, end, pid in found
    ]
    if not marks:
        marks = _between_optimizer_steps(trace)
    marks.sort(key=lambda mark: mark.start)
    return _early_marked(marks[:_MOST_STEPS])


def step_stats(marks: list[StepMark]) -> StepStats:
    """Durations of the steps that are not early."""
    lengths = [mark.end - mark.start for mark in marks if not mark.early]
    if not lengths:
        return StepStats(count=0, mean=None, median=None, p99=None)
    column = np.array(lengths, np.float64)
    return StepStats(
        count=len(lengths),
        mean=round(float(column.mean())),
        median=round(median(column)),
        p99=round(quantile(column, 0.99)),
    )


def described(
    marks: list[StepMark], origin: int, devices: list[tuple[int | str, GpuColumns, Gaps]]
) -> list[TraceStep]:
    """Steps with what each device did meanwhile."""
    pids = {mark.pid for mark in marks}
    figures = [_on_device(marks, *device) for device in devices]
    return [
        TraceStep(
            name=mark.name,
            start_ns=mark.start - origin,
            duration_ns=mark.end - mark.start,
            early=mark.early,
            partial=False,
            source=mark.source,
            pid=mark.pid if len(pids) > 1 else None,
            devices=[each[index] for each in figures],
        )
        for index, mark in enumerate(marks)
    ]


def _named(trace: Trace, pattern: re.Pattern[str]) -> list[tuple[str, int, int, str]]:
    host = trace.host
    rows = np.flatnonzero(trace.named(host.name, pattern.search))
    return [
        (
            trace.names[host.name[row]],
            int(host.start[row]),
            int(host.end[row]),
            trace.threads[host.thread[row]].pid,
        )
        for row in rows.tolist()
    ]


def _between_optimizer_steps(trace: Trace) -> list[StepMark]:
    """From the end of one optimizer step to the end of the next, for each process."""
    ends: dict[str, list[tuple[int, str]]] = {}
    for name, _, end, pid in _named(trace, _OPTIMIZER_STEP):
        ends.setdefault(pid, []).append((end, name))
    marks = []
    for pid, each in ends.items():
        first_name = sorted(each)[0][1]
        of_one = sorted(end for end, name in each if name == first_name)  # several optimizers: count one
        marks += [
            StepMark(name=f"step {index + 1}", start=before, end=end, pid=pid, source="optimizer")
            for index, (before, end) in enumerate(pairwise(of_one))
        ]
    return marks


def _early_marked(marks: list[StepMark]) -> list[StepMark]:
    """Mark the leading steps of each process that are longer than the rest."""
    early: set[int] = set()
    for pid in {mark.pid for mark in marks}:
        mine = [index for index, mark in enumerate(marks) if mark.pid == pid]
        lengths = np.array([marks[index].end - marks[index].start for index in mine], np.float64)
        for place, index in enumerate(mine[:-2]):
            if lengths[place] <= EARLY_AT * median(lengths[place + 1 :]):
                break
            early.add(index)
    return [structs.replace(mark, early=index in early) for index, mark in enumerate(marks)]


def _on_device(marks: list[StepMark], label: int | str, gpu: GpuColumns, gaps: Gaps) -> list[StepDevice]:
    start = np.array([mark.start for mark in marks], np.int64)
    end = np.array([mark.end for mark in marks], np.int64)
    kernels = np.sort(gpu.start[gpu.kind == KERNEL])
    count = np.searchsorted(kernels, end) - np.searchsorted(kernels, start)
    edges = (
        (gaps.start, np.where(gaps.call < 0, gaps.start, gaps.launched)),
        (gaps.launched, gaps.returned),
        (gaps.returned, gaps.end),
        (gaps.start, np.where(gaps.call < 0, gaps.end, gaps.start)),
    )
    parts = [Union(part_start, part_end).within(start, end) for part_start, part_end in edges]
    span_start, span_end = (
        np.clip(start, gaps.span_start, gaps.span_end),
        np.clip(end, gaps.span_start, gaps.span_end),
    )
    idle = np.sum(parts, axis=0)
    return [
        StepDevice(
            device=label,
            busy_ns=int(span_end[index] - span_start[index] - idle[index]),
            idle=IdleParts(
                host_late_ns=int(parts[0][index]),
                in_launch_ns=int(parts[1][index]),
                after_launch_ns=int(parts[2][index]),
                unmatched_ns=int(parts[3][index]),
            ),
            kernels=int(count[index]),
        )
        for index in range(len(marks))
    ]
