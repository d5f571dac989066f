"""A partition of a device's time, and what its parts are to a verdict.

Every moment of the span belongs to exactly one part: contractions first, then other kernels,
communication, copies; idle time by the cause of its gap. One table says which regime, and which
limit of the step, a part counts for; one that has none counts for `other`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from msgspec import Struct

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.part_names import WORDS
from autobrrr.records import Limit, Regime
from autobrrr.trace.causes import host_causes
from autobrrr.trace.causes.idle_causes import LateCauses
from autobrrr.trace.device.device_activity import LAUNCH_LATENCY_NS, DeviceActivity
from autobrrr.trace.kernels.kernel_classes import CLASSES, COMMUNICATION
from autobrrr.trace.kernels.kernel_table import KernelTable, contraction
from autobrrr.trace.reading.trace_columns import KERNEL, Flags, GpuColumns
from autobrrr.trace.timeline.idle_gaps import Gaps
from autobrrr.trace.timeline.intervals import Union, joined, union

OTHER: Final = "other"


class TimePart(Struct, frozen=True):
    """What a part of the device's time is to a verdict, and what it is called."""

    regime: Regime | None
    limit: Limit | None
    words: str


PARTS: Final[Mapping[str, TimePart]] = {
    "contractions": TimePart("compute", "kernels", WORDS["compute"]),
    "movers": TimePart("memory", "kernels", WORDS["memory"]),
    "small_kernels": TimePart("underfilled", "kernels", "kernels too small for the device"),
    "collectives": TimePart("communication", "communication", "collectives with nothing beside them"),
    "copies_in": TimePart("input", "input", "copies from the host"),
    "copies_out": TimePart("memory", "input", "copies to the host"),
    "other_operations": TimePart("memory", "kernels", "copies on the device"),
    "loader": TimePart("input", "input", WORDS["input"]),
    "dispatch": TimePart("overhead", "host", WORDS["overhead"]),
    "launches": TimePart("overhead", "host", "launch calls"),
    "python": TimePart("host", "host", "long stretches of Python"),
    "python_once": TimePart("host", None, "one long stretch of Python"),
    "operators_on_host": TimePart(None, "host", "operators that compute on the CPU"),
    "held_up": TimePart(
        None, "host", "operators that are short otherwise: first uses, or other load on the CPU"
    ),
    "untraced_host": TimePart(None, "host", "the host, which recorded nothing"),
    "waits": TimePart("sync", "sync", WORDS["sync"]),
    "first_use": TimePart(None, "startup", "first launches, loading, graph capture and compilation"),
    "time_slices": TimePart(None, "shared", "waits while another process has the device"),
    "queued": TimePart(None, None, "waits long after the launch: on other streams, or inside graphs"),
    "unmatched": TimePart(None, None, "idle time whose launch call is not in the file"),
    "operators_once": TimePart(None, None, "an operator that computes on the CPU, once"),
    "held_up_once": TimePart(None, None, "one operator that is short otherwise"),
    "profiler": TimePart(None, None, "the profiler"),
}

BUSY: Final = tuple(PARTS)[:7]


def time_parts_ns(
    gpu: GpuColumns,
    work: KernelTable,
    seen: DeviceActivity,
    *,
    gaps: Gaps,
    late: LateCauses,
    sliced: Flags,
    first_use: int,
    blocked_ns: int,
) -> dict[str, int]:
    """Every moment of the span, by part; they sum to it.

    Host-late time after a wait for the device counts as `waits` as far as the waits themselves
    lasted (`blocked_ns`): so much further ahead the host could have run.

    Args:
        sliced: Gaps in which another process has the device.
        first_use: Nanoseconds of idle time in launch calls that load modules.
    """
    parts = _busy_ns(gpu, work, seen)
    marks = late.by_gap_ns.sum(axis=0)
    dispatch = int(marks[host_causes.DISPATCHING].sum())
    after_waits = int(late.by_gap_ns[late.after_synchronisation][:, host_causes.DISPATCHING].sum())
    moved = min(after_waits, blocked_ns)
    latency = np.minimum(gaps.after_launch, LAUNCH_LATENCY_NS)
    queued = gaps.after_launch - latency
    parts |= {
        "dispatch": dispatch - moved,
        "waits": int(marks[host_causes.SYNCHRONISATION]) + moved,
        "loader": int(marks[host_causes.DATA_LOADER]),
        "launches": int(gaps.in_launch.sum()) - first_use + int(latency.sum()),
        "first_use": first_use + int(marks[host_causes.INITIALISATION]),
        "untraced_host": int(marks[host_causes.UNTRACED]),
        "profiler": int(marks[host_causes.PROFILER]),
        "time_slices": int(queued[sliced].sum()),
        "queued": int(queued[~sliced].sum()),
        "unmatched": int(gaps.unmatched.sum()),
    }
    for name, mark, once in (
        ("python", host_causes.LONG_PYTHON, "python_once"),
        ("operators_on_host", host_causes.LONG_OPERATOR, "operators_once"),
        ("held_up", host_causes.HELD_UP, "held_up_once"),
    ):
        parts[name if recurs(late.by_gap_ns[:, mark]) else once] = int(marks[mark])
    return parts


def recurs(by_gap_ns: np.ndarray) -> bool:
    """Whether stretches come back, none of them most of the whole."""
    total = int(by_gap_ns.sum())
    count = int((by_gap_ns > 0).sum())
    largest = thresholds.LARGEST_OF_RECURRING * total
    return count >= thresholds.RECURS_FROM and int(by_gap_ns.max()) <= largest


def _busy_ns(gpu: GpuColumns, work: KernelTable, seen: DeviceActivity) -> dict[str, int]:
    kernel = gpu.kind == KERNEL
    communicates = work.class_ == CLASSES.index(COMMUNICATION)
    wide = kernel & ~communicates & ~work.underfilled
    layers: tuple[tuple[str, Union], ...] = (
        ("contractions", _over(gpu, wide & contraction(work.class_))),
        ("movers", _over(gpu, wide & ~contraction(work.class_))),
        ("small_kernels", _over(gpu, kernel & ~communicates & work.underfilled)),
        ("collectives", _over(gpu, communicates)),
        ("copies_in", seen.host_to_device),
        ("copies_out", seen.device_to_host),
        ("other_operations", _over(gpu, ~kernel)),
    )
    found = {}
    covered, so_far = Union(gpu.start[:0], gpu.end[:0]), 0
    for name, layer in layers:
        covered = joined(covered, layer)
        length = covered.length_ns()
        found[name] = length - so_far
        so_far = length
    return found


def _over(gpu: GpuColumns, chosen: Flags) -> Union:
    return union(gpu.start[chosen], gpu.end[chosen])
