"""The columns of a trace: what is left of its events once they are read.

GPU operations and host events each have one set of numpy columns, in the order of the file.
Names, threads, devices, grids and shapes are numbers into tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from autobrrr.trace.reading.nanoseconds import Nanoseconds
from autobrrr.trace.reading.trace_metadata import Metadata

Codes = NDArray[np.int32]
Flags = NDArray[np.bool_]
T = TypeVar("T")
Columns = TypeVar("Columns", bound=Struct)

# Kinds of events. GPU operations first.
KERNEL, MEMCPY, MEMSET = 1, 2, 3
CALL, OPERATOR, PYTHON, ANNOTATION, OVERHEAD = 4, 5, 6, 7, 8

KIND_OF_CATEGORY = {
    "kernel": KERNEL,
    "gpu_memcpy": MEMCPY,
    "memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "memset": MEMSET,
    "cuda_runtime": CALL,
    "cuda_driver": CALL,
    "runtime": CALL,
    "driver": CALL,
    "hip_runtime": CALL,
    "hip_driver": CALL,
    "cpu_op": OPERATOR,
    "operator": OPERATOR,
    "python_function": PYTHON,
    "user_annotation": ANNOTATION,
    "overhead": OVERHEAD,
}


# Categories of events that other accelerators record in the same format, and nobody here reads.
ACCELERATOR_OF_CATEGORY = {
    "enqueue": "an Ascend NPU",
    "dequeue": "an Ascend NPU",
    "mtia_runtime": "an MTIA device",
    "mtia_ccp_events": "an MTIA device",
    "hpu_op": "a Gaudi HPU",
    "privateuse1_runtime": "a device of another vendor",
}


def used(codes: NDArray[np.integer]) -> list[int]:
    """The codes that occur, in order; for small non-negative numbers."""
    return np.flatnonzero(np.bincount(codes)).tolist() if len(codes) else []


def distinct(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The values that occur, in order; quicker than numpy's where they come in sorted runs."""
    ranked = np.sort(values, kind="stable")
    return ranked[np.concatenate(([True], ranked[1:] != ranked[:-1]))] if len(ranked) else ranked


def chosen(columns: Columns, rows: NDArray[np.int64] | Flags) -> Columns:
    """The same columns of some rows; what is no column stays."""
    fields = {name: getattr(columns, name) for name in columns.__struct_fields__}
    return structs.replace(
        columns, **{name: each[rows] for name, each in fields.items() if isinstance(each, np.ndarray)}
    )


def quantile(column: NDArray[np.int64] | NDArray[np.float64], q: float) -> float:
    """The quantile of a non-empty column, interpolated linearly between neighbours.

    numpy's own loads numpy.ma, which costs as much as reading 5 MB.
    """
    ranked = np.sort(column)
    place = q * (len(ranked) - 1)
    low = int(place)
    high = min(low + 1, len(ranked) - 1)
    return float(ranked[low]) + (float(ranked[high]) - float(ranked[low])) * (place - low)


def median(column: NDArray[np.int64] | NDArray[np.float64]) -> float:
    """The middle of a non-empty column."""
    return quantile(column, 0.5)


class Table(dict[T, int], Generic[T]):
    """Numbers things in the order in which they are met."""

    def __missing__(self, thing: T) -> int:
        number = self[thing] = len(self)
        return number


def joined_columns(parts: list[Columns]) -> Columns:
    """All parts as one; at least one part."""
    first = parts[0]
    return structs.replace(
        first,
        **{name: np.concatenate([getattr(each, name) for each in parts]) for name in first.__struct_fields__},
    )


class GpuColumns(Struct, frozen=True, kw_only=True):
    """Operations of all devices; shape [operations] each."""

    start: Nanoseconds
    end: Nanoseconds  # start where the duration is missing or negative
    kind: NDArray[np.int8]
    name: Codes
    device: Codes
    stream: Codes
    correlation: NDArray[np.int64]  # 0: none
    grid: Codes  # -1: not recorded; into Trace.grids
    block: Codes
    bytes: NDArray[np.int64]  # of copies and sets; -1: not recorded
    bad: NDArray[np.int8]  # of the duration: 1 missing, 2 negative, 3 zero

    def __len__(self) -> int:
        return len(self.start)


class HostColumns(Struct, frozen=True, kw_only=True):
    """Calls, operators, Python functions and annotations on the host; shape [events] each."""

    start: Nanoseconds
    end: Nanoseconds
    kind: NDArray[np.int8]
    name: Codes
    thread: Codes
    correlation: NDArray[np.int64]
    shape: Codes  # -1: not recorded; into Trace.shapes; only of operators whose work is counted, or priced

    def __len__(self) -> int:
        return len(self.start)


class OperatorShape(Struct, frozen=True):
    """Arguments of an operator, as JSON text."""

    dims: bytes
    types: bytes
    concrete: bytes


class Thread(Struct, frozen=True):
    pid: str
    tid: str


class Trace(Struct, frozen=True, kw_only=True):
    """One file, read."""

    file: str
    bytes_read: int
    events: int
    gpu: GpuColumns
    host: HostColumns
    names: list[str]
    threads: list[Thread]
    devices: list[str]
    grids: list[bytes]
    shapes: list[OperatorShape]
    ranks_of_devices: dict[str, int]  # where the events themselves carry a rank
    metadata: Metadata
    accelerator: str | None  # that ran the job, where its operations are not read
    damage: str | None  # why reading ended early
    unread: int  # events without a readable time, and list entries that are no events
    first_unread: str | None  # where the first of them stands, and what it is
    irregular: list[str]  # what a strict reader would refuse, yet was read
    negative_host: int  # host events with a negative duration

    def named(self, names: Codes, holds: Callable[[str], object]) -> Flags:
        """Of numbers into the names, which stand for one that holds; each name is asked once."""
        table = np.zeros(len(self.names) or 1, np.bool_)
        for name in used(names):
            table[name] = bool(holds(self.names[name]))
        return np.asarray(table[names], np.bool_)
