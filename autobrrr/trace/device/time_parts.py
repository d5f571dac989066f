"""A partition of a device's time, and what its parts are to a verdict.

Every moment of the span belongs to exactly one part: contractions first, then other kernels,
communication, copies; idle time by the cause of its gap. One table says which regime, and which
limit of the step, a part counts for; one that has none counts for `other`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.part_names import WORDS
from autobrrr.records import Limit, Regime
from autobrrr.trace.causes.host_causes import (
    DATA_LOADER,
    DISPATCHING,
    HELD_UP,
    INITIALISATION,
    LONG_OPERATOR,
    LONG_PYTHON,
    PROFILER,
    SYNCHRONISATION,
    UNTRACED,
)
from autobrrr.trace.causes.idle_causes import LateCauses
from autobrrr.trace.kernels.kernel_classes import COMMUNICATION, CONTRACTIONS, is_collective
from autobrrr.trace.kernels.kernel_table import KernelTable
from autobrrr.trace.reading.trace_columns import KERNEL, MEMCPY, MEMSET, Flags, GpuColumns, Trace, used
from autobrrr.trace.timeline.idle_gaps import Gaps
from autobrrr.trace.timeline.intervals import EMPTY, Union, joined, union
from autobrrr.trace.timeline.launches import first_operations
from autobrrr.trace.trace_records import Copies

LAUNCH_LATENCY_NS = 10_000
LEAST_LEFT = 0.1  # of the span: where less is left, the recording shows next to nothing of the job
_DEVICE_TO_HOST = re.compile(r"DtoH|Device ?-> ?(Host|Pageable|Pinned)|Device To Host", re.IGNORECASE)
_HOST_TO_DEVICE = re.compile(r"HtoD|Host ?-> ?Device|Host To Device", re.IGNORECASE)
_DIRECTION = re.compile(r"\b([HD]to[HD]|PtoP|Peer)", re.IGNORECASE)
OTHER: Final = "other"


class TimePart(Struct, frozen=True):
    """What a part of the device's time is to a verdict, and what it is called.

    `marks` are those of the host-late time that it holds; what does not recur counts as the part `once`.
    """

    regime: Regime | None
    limit: Limit | None
    words: str
    marks: Sequence[int] = ()
    once: str | None = None


PARTS: Final[Mapping[str, TimePart]] = {
    "contractions": TimePart("compute", "kernels", WORDS["compute"]),
    "movers": TimePart("memory", "kernels", WORDS["memory"]),
    "small_kernels": TimePart("underfilled", "kernels", "kernels too small for the device"),
    "collectives": TimePart("communication", "communication", "collectives with nothing beside them"),
    "copies_in": TimePart("input", "input", "copies from the host"),
    "copies_out": TimePart("memory", "input", "copies to the host"),
    "other_operations": TimePart("memory", "kernels", "copies on the device"),
    "loader": TimePart("input", "input", WORDS["input"], [DATA_LOADER]),
    "dispatch": TimePart("overhead", "host", WORDS["overhead"], DISPATCHING),
    "launches": TimePart("overhead", "host", "launch calls"),
    "python": TimePart("host", "host", "long stretches of Python", [LONG_PYTHON], "python_once"),
    "python_once": TimePart("host", None, "one long stretch of Python"),
    "operators_on_host": TimePart(
        None, "host", "operators that compute on the CPU", [LONG_OPERATOR], "operators_once"
    ),
    "held_up": TimePart(
        None,
        "host",
        "operators that are short otherwise: first uses, or other load on the CPU",
        [HELD_UP],
        "held_up_once",
    ),
    "untraced_host": TimePart(None, "host", "the host, which recorded nothing", [UNTRACED]),
    "waits": TimePart("sync", "sync", WORDS["sync"], [SYNCHRONISATION]),
    "first_use": TimePart(
        None, "startup", "first launches, loading, graph capture and compilation", [INITIALISATION]
    ),
    "time_slices": TimePart(None, "shared", "waits while another process has the device"),
    "queued": TimePart(None, None, "waits long after the launch: on other streams, or inside graphs"),
    "unmatched": TimePart(None, None, "idle time whose launch call is not in the file"),
    "operators_once": TimePart(None, None, "an operator that computes on the CPU, once"),
    "held_up_once": TimePart(None, None, "one operator that is short otherwise"),
    "profiler": TimePart(None, None, "the profiler", [PROFILER]),
}

BUSY: Final = tuple(PARTS)[:7]


def time_parts_ns(
    seen: DeviceActivity, gaps: Gaps, late: LateCauses, *, sliced: Flags, first_use: int, blocked_ns: int
) -> dict[str, int]:
    """Every moment of the span, by part; they sum to it.

    Host-late time after a wait for the device counts as `waits` as far as the waits themselves
    lasted (`blocked_ns`): so much further ahead the host could have run.

    Args:
        sliced: Gaps in which another process has the device.
        first_use: Nanoseconds of idle time in launch calls that load modules.
    """
    parts = seen.layers_ns()
    for name, part in PARTS.items():
        if part.marks:
            by_gap_ns = late.by_gap_ns[:, part.marks].sum(axis=1)
            parts[name if part.once is None or recurs(by_gap_ns) else part.once] = int(by_gap_ns.sum())
    after_waits = int(late.by_gap_ns[late.after_synchronisation][:, DISPATCHING].sum())
    moved = min(after_waits, blocked_ns)
    parts["dispatch"] -= moved
    parts["waits"] += moved
    parts["first_use"] += first_use
    latency = np.minimum(gaps.after_launch, LAUNCH_LATENCY_NS)
    queued = gaps.after_launch - latency
    return parts | {
        "launches": int(gaps.in_launch.sum()) - first_use + int(latency.sum()),
        "time_slices": int(queued[sliced].sum()),
        "queued": int(queued[~sliced].sum()),
        "unmatched": gaps.parts()["unmatched"].length_ns(),
    }


def recurs(by_gap_ns: np.ndarray) -> bool:
    """Whether stretches come back, none of them most of the whole."""
    total = int(by_gap_ns.sum())
    count = int((by_gap_ns > 0).sum())
    largest = thresholds.LARGEST_OF_RECURRING * total
    return count >= thresholds.RECURS_FROM and int(by_gap_ns.max()) <= largest


class DeviceActivity(Struct, frozen=True, kw_only=True):
    """Unions over one device's operations.

    `parts` has them by the names of `PARTS`; where several cover a moment, it belongs to the first.
    """

    parts: dict[str, Union]
    compute: Union  # kernels but those of communication libraries
    communication: Union
    memcpy: Union
    memset: Union

    def layers_ns(self) -> dict[str, int]:
        """Every moment of the time that the device is busy, by part; they sum to it."""
        found, covered, so_far = {}, EMPTY, 0
        for name, part in self.parts.items():
            covered = joined(covered, part)
            found[name] = covered.length_ns() - so_far
            so_far += found[name]
        return found


def activity(trace: Trace, gpu: GpuColumns, work: KernelTable) -> DeviceActivity:
    """The unions."""
    kernel, copies = gpu.kind == KERNEL, gpu.kind == MEMCPY
    wide = kernel & ~work.underfilled
    contracts, communicates = work.of(*CONTRACTIONS), work.of(COMMUNICATION)
    collective = kernel & trace.named(gpu.name, is_collective)

    def over(chosen: Flags) -> Union:
        return union(gpu.start[chosen], gpu.end[chosen])

    return DeviceActivity(
        parts={
            "contractions": over(wide & contracts),
            "movers": over(wide & ~contracts & ~communicates),
            "small_kernels": over(work.underfilled),
            "collectives": over(communicates),
            "copies_in": over(copies & trace.named(gpu.name, _HOST_TO_DEVICE.search)),
            "copies_out": over(copies & trace.named(gpu.name, _DEVICE_TO_HOST.search)),
            "other_operations": over(~kernel),
        },
        compute=over(kernel & ~collective),
        communication=over(collective),
        memcpy=over(copies),
        memset=over(gpu.kind == MEMSET),
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
    waited = np.isin(gaps.operation, first) & (gaps.after_launch > LAUNCH_LATENCY_NS)
    if not waited.any():
        return None
    last = np.flatnonzero(waited)[-1]  # gaps are in the order of time
    until = int(gaps.end[last])
    behind = int((gpu.start >= gpu.start[gaps.operation[last]]).sum())
    lasting = gaps.span_end - until >= LEAST_LEFT * (gaps.span_end - gaps.span_start)
    return until if 2 * behind > len(gpu) and lasting else None


def copies(trace: Trace, gpu: GpuColumns) -> list[Copies]:
    """Copies and sets by direction, the longest first."""
    found: dict[str, NDArray[np.int64]] = {}
    for name in used(gpu.name[gpu.kind != KERNEL]):
        rows = np.flatnonzero((gpu.kind != KERNEL) & (gpu.name == name))
        key = "set" if gpu.kind[rows[0]] == MEMSET else _direction(trace.names[name])
        total = found.setdefault(key, np.zeros(3, np.int64))
        total += ((gpu.end - gpu.start)[rows].sum(), len(rows), np.maximum(gpu.bytes[rows], 0).sum())
    shown = [
        Copies(direction=key, ns=int(ns), count=int(count), bytes=int(size) or None)
        for key, (ns, count, size) in found.items()
    ]
    return sorted(shown, key=lambda each: -each.ns)


def _direction(name: str) -> str:
    found = _DIRECTION.search(name)
    return found.group(1).replace("hto", "Hto").replace("dto", "Dto") if found else "copy"
