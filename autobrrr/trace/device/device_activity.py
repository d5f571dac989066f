"""What a device does when: unions by kind of work, exposed communication, and a partition of time.

The partition gives every moment of the span to exactly one share: contractions first, then other
kernels, communication, copies; idle time by the cause of its gap. It sums to the span.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from msgspec import Struct

from autobrrr.trace.causes import host_causes
from autobrrr.trace.causes.idle_causes import LateCauses
from autobrrr.trace.kernels.kernel_classes import CLASSES, COMMUNICATION, is_collective
from autobrrr.trace.kernels.kernel_table import KernelTable, contraction
from autobrrr.trace.reading.trace_columns import KERNEL, MEMCPY, MEMSET, Flags, GpuColumns, Trace, used
from autobrrr.trace.timeline.idle_gaps import Gaps
from autobrrr.trace.timeline.intervals import Union, joined, overlap_ns, union
from autobrrr.trace.trace_records import Copies

LAUNCH_LATENCY_NS = 10_000
_HOST_TO_DEVICE = re.compile(r"HtoD|Host ?-> ?Device|Host To Device", re.IGNORECASE)
_DIRECTION = re.compile(r"\b([HD]to[HD]|PtoP|Peer)", re.IGNORECASE)
_OVERHEAD = [host_causes.ALLOCATION, host_causes.OPTIMIZER, host_causes.OP_DISPATCH, host_causes.PYTHON_CODE]
_NO_REGIME = [
    host_causes.UNTRACED,
    host_causes.INITIALISATION,
    host_causes.PROFILER,
    host_causes.LONG_OPERATOR,
]


class DeviceActivity(Struct, frozen=True, kw_only=True):
    """Unions over one device's operations."""

    compute: Union  # kernels but those of communication libraries
    communication: Union
    memcpy: Union
    memset: Union
    host_to_device: Union

    def exposed_communication_ns(self) -> int:
        return self.communication.length_ns() - overlap_ns(self.communication, self.compute)

    def exposed_memcpy_ns(self) -> int:
        return joined(self.memcpy, self.compute, self.communication).length_ns() - self._kernels_ns()

    def exposed_host_to_device_ns(self) -> int:
        return joined(self.host_to_device, self.compute, self.communication).length_ns() - self._kernels_ns()

    def _kernels_ns(self) -> int:
        return joined(self.compute, self.communication).length_ns()


def activity(trace: Trace, gpu: GpuColumns) -> DeviceActivity:
    """The unions."""
    kernel = gpu.kind == KERNEL
    collective = kernel & _named(trace, gpu, is_collective)
    copied = _named(trace, gpu, lambda name: _HOST_TO_DEVICE.search(name) is not None)

    def over(chosen: Flags) -> Union:
        return union(gpu.start[chosen], gpu.end[chosen])

    return DeviceActivity(
        compute=over(kernel & ~collective),
        communication=over(collective),
        memcpy=over(gpu.kind == MEMCPY),
        memset=over(gpu.kind == MEMSET),
        host_to_device=over((gpu.kind == MEMCPY) & copied),
    )


def partition_ns(
    gpu: GpuColumns, work: KernelTable, seen: DeviceActivity, *, gaps: Gaps, late: LateCauses, blocked_ns: int
) -> dict[str, int]:
    """Every moment of the span, by regime; `other` holds what no regime claims.

    Host-late time after a wait for the device counts as `sync` as far as the waits themselves
    lasted (`blocked_ns`): so much further ahead the host could have run.
    """
    kernel = gpu.kind == KERNEL
    communicates = work.class_ == CLASSES.index(COMMUNICATION)
    wide = kernel & ~communicates & ~work.underfilled
    layers: tuple[tuple[str, Union], ...] = (
        ("compute", _over(gpu, wide & contraction(work.class_))),
        ("memory", _over(gpu, wide & ~contraction(work.class_))),
        ("underfilled", _over(gpu, kernel & ~communicates & work.underfilled)),
        ("communication", _over(gpu, communicates)),
        ("input", seen.host_to_device),
        ("memory", _over(gpu, ~kernel)),
    )
    shares = dict.fromkeys(
        ("overhead", "input", "host", "sync", "communication", "memory", "compute", "underfilled", "other"), 0
    )
    covered, so_far = Union(gpu.start[:0], gpu.end[:0]), 0
    for name, layer in layers:
        covered = joined(covered, layer)
        length = covered.length_ns()
        shares[name] += length - so_far
        so_far = length
    marks = late.by_gap_ns.sum(axis=0)
    shares["overhead"] += int(marks[_OVERHEAD].sum())
    shares["host"] += int(marks[host_causes.LONG_PYTHON])
    shares["input"] += int(marks[host_causes.DATA_LOADER])
    shares["sync"] += int(marks[host_causes.SYNCHRONISATION])
    shares["other"] += int(marks[_NO_REGIME].sum())
    first_use = first_use_ns(gaps)
    shares["overhead"] += int(gaps.in_launch.sum()) - first_use
    latency = np.minimum(gaps.after_launch, LAUNCH_LATENCY_NS)
    shares["overhead"] += int(latency.sum())
    shares["other"] += first_use + int((gaps.after_launch - latency).sum()) + int(gaps.unmatched.sum())
    moved = min(_overhead_after_waits_ns(late), blocked_ns)
    shares["overhead"] -= moved
    shares["sync"] += moved
    return shares


def first_use_ns(gaps: Gaps) -> int:
    """Idle time inside launch calls that last a millisecond or more: modules are loaded, algorithms tried."""
    return int(gaps.in_launch[gaps.in_launch >= 1_000_000].sum())


def copies(trace: Trace, gpu: GpuColumns) -> list[Copies]:
    """Copies and sets by direction, the longest first."""
    found: dict[str, list[int]] = {}
    rows = np.flatnonzero(gpu.kind != KERNEL)
    length = (gpu.end - gpu.start)[rows].tolist()
    direction = {name: _direction(trace.names[name]) for name in used(gpu.name[rows])}
    for row, ns, name, size in zip(
        rows.tolist(), length, gpu.name[rows].tolist(), gpu.bytes[rows].tolist(), strict=True
    ):
        key = "set" if gpu.kind[row] == MEMSET else direction[name]
        total = found.setdefault(key, [0, 0, 0])
        total[0] += ns
        total[1] += 1
        total[2] += max(size, 0)
    return [
        Copies(direction=key, ns=ns, count=count, bytes=size or None)
        for key, (ns, count, size) in sorted(found.items(), key=lambda item: -item[1][0])
    ]


def _direction(name: str) -> str:
    found = _DIRECTION.search(name)
    return found.group(1).replace("hto", "Hto").replace("dto", "Dto") if found else "copy"


def _overhead_after_waits_ns(late: LateCauses) -> int:
    return int(late.by_gap_ns[late.after_synchronisation][:, _OVERHEAD].sum())


def _over(gpu: GpuColumns, chosen: Flags) -> Union:
    return union(gpu.start[chosen], gpu.end[chosen])


def _named(trace: Trace, gpu: GpuColumns, holds: Callable[[str], bool]) -> Flags:
    table = np.zeros(len(trace.names) or 1, np.bool_)
    for name in used(gpu.name):
        table[name] = holds(trace.names[name])
    return np.asarray(table[gpu.name], np.bool_)
