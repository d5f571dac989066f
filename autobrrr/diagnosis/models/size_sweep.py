"""Step time against a size of the data, from a sweep that was asked for: batch, length or width.

Guards as for the batch probe, but for the line: work may grow with the square of a length.
"""

from __future__ import annotations

from autobrrr.diagnosis.models.batch_fit import step_times
from autobrrr.records import ShadowProbe, SizePoint, SizeSweep


def size_sweep(probe: ShadowProbe | None) -> SizeSweep | None:
    """The sweep as it leaves the program; None where none was made."""
    if probe is None:
        return None
    along = probe.sweep or "batch"
    if probe.status != "ok" or probe.batch is None:
        return SizeSweep(along=along, status="abstained", why=probe.why, notes=probe.notes)
    times, why = step_times(probe)
    size = probe.batch
    return SizeSweep(
        along=along,
        status="ok" if why is None else "abstained",
        why=why,
        size=size,
        points=[SizePoint(size=at, step_ns=int(ns)) for at, ns in sorted(times.items())],
        ratio_2x=times[2 * size] / times[size] if why is None and 2 * size in times else None,
        memory=probe.memory if why is None else None,
        notes=probe.notes,
    )
