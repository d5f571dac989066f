"""Which host call launched which GPU operation: the call of the same correlation id.

Where several calls share an id, the one that starts first; of those, the first in the file.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from autobrrr.trace.reading.trace_columns import CALL, Flags, GpuColumns, Trace

Rows = NDArray[np.int64]
NO_LAUNCH = -1


class LaunchCalls(Struct, frozen=True, kw_only=True):
    """The calls on the host that carry an id, one row for each id."""

    correlation: NDArray[np.int64]  # sorted, unique
    row: Rows  # into HostColumns, shape [ids]
    launching: Flags  # whether a call's name is that of a launch, shape [host events]

    def of(self, gpu: GpuColumns) -> Rows:
        """The launch call of each operation, a row of HostColumns; `NO_LAUNCH` where there is none."""
        if len(self.correlation) == 0:
            return np.full(len(gpu), NO_LAUNCH, np.int64)
        place = np.searchsorted(self.correlation, gpu.correlation)
        place = np.minimum(place, len(self.correlation) - 1)
        known = (self.correlation[place] == gpu.correlation) & (gpu.correlation > 0)
        return np.where(known, self.row[place], NO_LAUNCH)


def find_calls(trace: Trace) -> LaunchCalls:
    """All calls of a trace, by id."""
    host = trace.host
    with_id = np.flatnonzero((host.kind == CALL) & (host.correlation > 0))
    rows = with_id[np.argsort(host.start[with_id], kind="stable")]  # then by place in the file
    ids, first = np.unique(host.correlation[rows], return_index=True)
    launching = (host.kind == CALL) & trace.named(host.name, is_launch)
    return LaunchCalls(correlation=ids, row=rows[first], launching=launching)


def count_launches(gpu: GpuColumns, calls: LaunchCalls, correlation: NDArray[np.int64]) -> int:
    """Launch calls that share an id with one of these operations. `correlation`: of all host events."""
    mine = gpu.correlation[gpu.correlation > 0]
    return int(np.isin(correlation[calls.launching], mine).sum())


def first_operations(gpu: GpuColumns) -> Rows:
    """Rows of the operations whose kernel runs on its device for the first time in the trace."""
    order = np.argsort(gpu.start, kind="stable")
    key = gpu.device[order].astype(np.int64) << 32 | gpu.name[order]
    return np.asarray(order[np.unique(key, return_index=True)[1]], np.int64)


def is_launch(name: str) -> bool:
    """Whether a runtime or driver call launches work ("cudaLaunchKernel", "hipGraphLaunch", ...)."""
    return "Launch" in name and "HostFunc" not in name
