"""The idle time of a device, gap by gap, split by where the operation that ends a gap was.

In come one device's operations and their launch calls, out go gaps whose four parts sum to the
idle time to the nanosecond: the host was late, the launch call was running, the operation was
launched and had not begun, or no launch call is in the file. No operation can start before its launch
call does: where many seem to, the device's clock is behind, and the smallest shift that mends all but
stray ones is offered beside the uncorrected figures.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from autobrrr.trace.reading.nanoseconds import Nanoseconds
from autobrrr.trace.reading.trace_columns import GpuColumns, HostColumns
from autobrrr.trace.timeline.intervals import Union
from autobrrr.trace.timeline.launches import NO_LAUNCH, Rows
from autobrrr.trace.trace_records import IdleParts

SKEWED_AT = 0.05  # of the matched operations; fewer are strays
_STRAYS = 0.001


class Gaps(Struct, frozen=True, kw_only=True):
    """Stretches in which a device does nothing; shape [gaps] each.

    `start <= launched <= returned <= end`: the launch call's own times, cut to the gap. Where
    there is no launch call, both stand at `end` and `call` is `NO_LAUNCH`.
    """

    start: Nanoseconds
    launched: Nanoseconds
    returned: Nanoseconds
    end: Nanoseconds
    operation: Rows  # that ends the gap, a row of the device's own columns
    call: Rows  # its launch call, a row of HostColumns
    span_start: int
    span_end: int

    def __len__(self) -> int:
        return len(self.start)

    @property
    def in_launch(self) -> Nanoseconds:
        return self.returned - self.launched

    @property
    def after_launch(self) -> Nanoseconds:
        return self.end - self.returned

    def parts(self) -> dict[str, Union]:
        """The four parts of each gap, by their names in `IdleParts`; shape [gaps] each, some empty."""
        late = np.where(self.call == NO_LAUNCH, self.start, self.launched)
        return {
            "host_late": Union(self.start, late),
            "in_launch": Union(self.launched, self.returned),
            "after_launch": Union(self.returned, self.end),
            "unmatched": Union(late, self.launched),
        }


def find_gaps(gpu: GpuColumns, call: Rows, host: HostColumns, shift_ns: int = 0) -> Gaps:
    """The gaps between one device's operations.

    Args:
        gpu: Operations of one device, in the order of the file; at least one.
        call: Their launch calls.
        shift_ns: What is added to the device's clock before the two are compared.
    """
    order = np.argsort(gpu.start, kind="stable")
    start, latest = gpu.start[order] + shift_ns, np.maximum.accumulate(gpu.end[order]) + shift_ns
    open_ = np.flatnonzero(start[1:] > latest[:-1])
    gap_start, gap_end = latest[open_], start[open_ + 1]
    operation = order[open_ + 1]
    by = call[operation]
    known = by != NO_LAUNCH
    launched, returned = gap_end.copy(), gap_end.copy()
    if known.any():
        launched[known] = np.clip(host.start[by[known]], gap_start[known], gap_end[known])
        returned[known] = np.clip(host.end[by[known]], gap_start[known], gap_end[known])
    return Gaps(
        start=gap_start,
        launched=launched,
        returned=returned,
        end=gap_end,
        operation=operation,
        call=by,
        span_start=int(start[0]),
        span_end=int(latest[-1]),
    )


def idle_parts(gaps: Gaps) -> IdleParts:
    """The parts over all gaps."""
    return IdleParts(**{f"{name}_ns": part.length_ns() for name, part in gaps.parts().items()})


class Clock(Struct, frozen=True, kw_only=True):
    """How one device's clock stands to the host's, and how far a constant would have to move it."""

    matched: int
    before_launch: int  # operations that seem to start before their launch call
    shift_ns: int  # 0 where the clocks agree


def compare_clocks(gpu: GpuColumns, call: Rows, host: HostColumns) -> Clock:
    """Compare the starts of operations with those of their launch calls."""
    known = np.flatnonzero(call != NO_LAUNCH)
    ahead = host.start[call[known]] - gpu.start[known]
    before = int((ahead > 0).sum())
    shift = 0
    if len(known) and before > SKEWED_AT * len(known):
        ranked = np.sort(ahead)
        shift = int(ranked[-1 - int(_STRAYS * len(known))])
    return Clock(matched=len(known), before_launch=before, shift_ns=shift)
