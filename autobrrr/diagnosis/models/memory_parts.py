"""Who holds the job's memory: parts that sum to what its process has, on its device or on the host.

In: sizes that the agent has read, the step's peak by operator replay or by torch's allocator, the process's
own total. Out: `records.MemoryPart`s, the largest first; what nobody claims is the rest.
"""

from __future__ import annotations

from collections.abc import Iterator

from autobrrr.diagnosis.measurements import Measurements
from autobrrr.records import MemoryPart

MODEL, GRADIENTS, STATE = "parameters and buffers", "gradients", "optimizer state"
STEP, CACHE = "activations and temporaries of a step", "allocator's cache"
CONTEXT, REST = "CUDA context and libraries", "Python, libraries and data"


def memory_parts(measured: Measurements) -> list[MemoryPart]:
    """The parts; empty where the total is not known.

    Gradients count as large as their parameters: at the end of a backward they are all there.
    """
    on_device = measured.on_device
    held = measured.held[-1][1] if measured.held else None
    seen = [each.job_memory_bytes for each in measured.gpu if each.job_memory_bytes is not None]
    kept = None if measured.allocator is None else measured.allocator.reserved_bytes
    total = held if not on_device else max(seen[-1], kept or 0) if seen else kept
    if not total or measured.anatomy is None or measured.anatomy.parameter_bytes is None:
        return []
    parts = dict(_claimed(measured, on_device))
    stays = sum(size for what, size in parts.items() if what != STEP)
    if STEP in parts:  # the allocator may have given back since what the step had at its peak
        parts[STEP] = min(parts[STEP], max(0, total - stays))
    parts[CONTEXT if on_device else REST] = max(0, total - sum(parts.values()))
    place = "device" if on_device else "host"
    return sorted(
        (MemoryPart(place=place, what=what, bytes=size) for what, size in parts.items() if size > 0),
        key=lambda part: -part.bytes,
    )


def _claimed(measured: Measurements, on_device: bool) -> Iterator[tuple[str, int]]:
    anatomy, allocator = measured.anatomy, measured.allocator
    if anatomy is None:
        return
    stays = (
        anatomy.model_bytes or anatomy.parameter_bytes or 0,
        anatomy.parameter_bytes or 0,
        anatomy.state_bytes or 0,
    )
    yield from zip((MODEL, GRADIENTS, STATE), stays, strict=True)
    if on_device and allocator is not None:
        yield STEP, max(0, allocator.peak_bytes - sum(stays))
        yield CACHE, max(0, allocator.reserved_bytes - max(allocator.peak_bytes, sum(stays)))
    elif measured.probe is not None and measured.probe.memory is not None:
        yield STEP, measured.probe.memory.peak_bytes
