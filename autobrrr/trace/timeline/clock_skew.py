"""Host and device clocks that disagree: how far a constant would have to move the device's.

No operation can start before its launch call does. Where many seem to, the device's clock is
behind; the smallest shift that mends all but stray ones is offered beside the uncorrected figures.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from autobrrr.trace.reading.trace_columns import GpuColumns, HostColumns
from autobrrr.trace.timeline.launches import NO_LAUNCH, Rows

SKEWED_AT = 0.05  # of the matched operations; fewer are strays
_STRAYS = 0.001


class Clock(Struct, frozen=True, kw_only=True):
    """How one device's clock stands to the host's."""

    matched: int
    before_launch: int  # operations that seem to start before their launch call
    shift_ns: int  # 0 where the clocks agree

    @property
    def skewed(self) -> bool:
        return self.shift_ns > 0


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
