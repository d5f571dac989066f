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
from autobrrr.trace.reading.trace_columns import KERNEL, GpuColumns, Trace, median, quantile
from autobrrr.trace.timeline.idle_gaps import Gaps
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
    source: Literal["profiler", "optimizer"] = "profiler"
    early: bool = False


def find_steps(trace: Trace) -> list[StepMark]:
    """All steps of all processes, by start; at most 2000."""
    marks = _named(trace, _PROFILER_STEP) or _between_optimizer_steps(trace)
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
            source=mark.source,
            pid=mark.pid if len(pids) > 1 else None,
            devices=[each[index] for each in figures],
        )
        for index, mark in enumerate(marks)
    ]


def _named(trace: Trace, pattern: re.Pattern[str]) -> list[StepMark]:
    host = trace.host
    return [
        StepMark(
            name=trace.names[host.name[row]],
            start=int(host.start[row]),
            end=int(host.end[row]),
            pid=trace.threads[host.thread[row]].pid,
        )
        for row in np.flatnonzero(trace.named(host.name, pattern.search)).tolist()
    ]


def _between_optimizer_steps(trace: Trace) -> list[StepMark]:
    """From the end of one optimizer step to the end of the next, for each process."""
    found = sorted(_named(trace, _OPTIMIZER_STEP), key=lambda mark: (mark.end, mark.name))
    first_name: dict[str, str] = {}
    marks = []
    for mark in found:
        first_name.setdefault(mark.pid, mark.name)  # of several optimizers one is counted
    for pid, name in first_name.items():
        of_one = [mark.end for mark in found if (mark.pid, mark.name) == (pid, name)]
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
    parts = {name: part.within(start, end) for name, part in gaps.parts().items()}
    in_span = np.diff(np.clip([start, end], gaps.span_start, gaps.span_end), axis=0)[0]
    idle = np.sum([*parts.values()], axis=0)
    return [
        StepDevice(
            device=label,
            busy_ns=int(in_span[index] - idle[index]),
            idle=IdleParts(**{f"{name}_ns": int(ns[index]) for name, ns in parts.items()}),
            kernels=int(count[index]),
        )
        for index in range(len(marks))
    ]
