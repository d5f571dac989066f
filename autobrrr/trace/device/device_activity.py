"""What a device does when: unions by kind of work, exposed communication and copies."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from autobrrr.trace.kernels.kernel_classes import is_collective
from autobrrr.trace.reading.trace_columns import KERNEL, MEMCPY, MEMSET, Flags, GpuColumns, Trace, among, used
from autobrrr.trace.timeline.idle_gaps import Gaps
from autobrrr.trace.timeline.intervals import Union, joined, overlap_ns, union
from autobrrr.trace.timeline.launches import first_operations
from autobrrr.trace.trace_records import Copies

LAUNCH_LATENCY_NS = 10_000
LEAST_LEFT = 0.1  # of the span: where less is left, the recording shows next to nothing of the job
_DEVICE_TO_HOST = re.compile(r"DtoH|Device ?-> ?(Host|Pageable|Pinned)|Device To Host", re.IGNORECASE)
_HOST_TO_DEVICE = re.compile(r"HtoD|Host ?-> ?Device|Host To Device", re.IGNORECASE)
_DIRECTION = re.compile(r"\b([HD]to[HD]|PtoP|Peer)", re.IGNORECASE)


class DeviceActivity(Struct, frozen=True, kw_only=True):
    """Unions over one device's operations."""

    compute: Union  # kernels but those of communication libraries
    communication: Union
    memcpy: Union
    memset: Union
    host_to_device: Union
    device_to_host: Union

    def exposed_communication_ns(self) -> int:
        return self.communication.length_ns() - overlap_ns(self.communication, self.compute)

    def beside_kernels_ns(self, copies: Union) -> int:
        """How long copies run with no kernel."""
        kernels = joined(self.compute, self.communication)
        return copies.length_ns() - overlap_ns(copies, kernels)


def activity(trace: Trace, gpu: GpuColumns) -> DeviceActivity:
    """The unions."""
    kernel = gpu.kind == KERNEL
    collective = kernel & trace.named(gpu.name, is_collective)
    copies_in = trace.named(gpu.name, _HOST_TO_DEVICE.search)
    copies_out = trace.named(gpu.name, _DEVICE_TO_HOST.search)

    def over(chosen: Flags) -> Union:
        return union(gpu.start[chosen], gpu.end[chosen])

    return DeviceActivity(
        compute=over(kernel & ~collective),
        communication=over(collective),
        memcpy=over(gpu.kind == MEMCPY),
        memset=over(gpu.kind == MEMSET),
        host_to_device=over((gpu.kind == MEMCPY) & copies_in),
        device_to_host=over((gpu.kind == MEMCPY) & copies_out),
    )


def first_use_ns(gaps: Gaps, gpu: GpuColumns) -> int:
    """Idle time inside launch calls of a millisecond or more that bring a kernel for the first time.

    Modules are loaded then, and algorithms tried. A call that lasts long later on was held up by something
    else: a full queue, or a host that others keep from running.

    Args:
        gpu: All operations of the device, those that the gaps' operations are rows of.
    """
    first = np.zeros(len(gpu), np.bool_)
    first[first_operations(gpu)] = True
    long = (gaps.in_launch >= 1_000_000) & first[gaps.operation]
    return int(gaps.in_launch[long].sum())


def unrecorded_until(gaps: Gaps, gpu: GpuColumns) -> int | None:
    """When the device had worked off what was launched before the recording began; None: at once.

    Of that nothing is in the file. Where another stream runs ahead of it, the device seems idle until the
    first operation of a stream comes that was long launched. Where most operations lie before it, they are
    not what one waits for.

    Args:
        gpu: All operations of the device, those that the gaps' operations are rows of.
    """
    order = np.argsort(gpu.start, kind="stable")
    first = order[np.unique(gpu.stream[order], return_index=True)[1]]
    waited = among(gaps.operation, first) & (gaps.after_launch > LAUNCH_LATENCY_NS)
    if not waited.any():
        return None
    last = np.flatnonzero(waited)[-1]  # gaps are in the order of time
    until = int(gaps.end[last])
    behind = int((gpu.start >= gpu.start[gaps.operation[last]]).sum())
    lasting = gaps.span_end - until >= LEAST_LEFT * (gaps.span_end - gaps.span_start)
    return until if 2 * behind > len(gpu) and lasting else None


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
