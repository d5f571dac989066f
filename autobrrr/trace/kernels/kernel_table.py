"""Per kernel: its class, whether it fills the device, and the work that can be counted.

In come one device's operations, out go columns beside them. "Fills" is judged by grid and duration,
never by name: a kernel with fewer blocks than the device has multiprocessors leaves some of them
idle, and one of a few microseconds is latency whatever its grid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from math import prod

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from autobrrr.roofline.device_peaks import SpecPeaks
from autobrrr.trace.causes.idle_causes import NOT_FOUND
from autobrrr.trace.kernels import kernel_classes
from autobrrr.trace.kernels.kernel_classes import CLASSES, CONTRACTIONS
from autobrrr.trace.kernels.operator_flops import inputs_are, operator_flops
from autobrrr.trace.reading.trace_columns import KERNEL, Flags, GpuColumns, Trace, used
from autobrrr.trace.reading.trace_metadata import DeviceProperties
from autobrrr.trace.timeline.launches import Rows

LATENCY_NS = 5_000
_STREAMING = re.compile(r"(vectorized|unrolled)_elementwise_kernel<(\d+)?")
_POINTERS = re.compile(r"(?:Array|array)<char\*, (\d)(?:ul)?>")
_ITEM_BYTES = (
    ("double", 8), ("<long", 8), ("c10::Half", 2), ("c10::BFloat16", 2), ("float", 4), ("int", 4), ("bool", 1)
)  # fmt: skip


class KernelTable(Struct, frozen=True, kw_only=True):
    """Beside the operations of one device; shape [operations] each.

    Attributes:
        class_: index into CLASSES; -1 for copies and sets.
        underfilled: leaves most of the device idle.
        flops: counted once for each operator, at its longest contraction; else 0.
        counted: belongs to an operator whose work was counted.
        ideal_ns: what the counted work would take at the spec-sheet peak of the units it uses.
        bytes: that a streaming kernel moves, from its grid; else 0.
        elements: that it goes over, likewise.
        fp32_plain: a contraction of 32-bit floats that runs without tensor cores.
    """

    class_: NDArray[np.int8]
    underfilled: Flags
    flops: NDArray[np.float64]
    counted: Flags
    ideal_ns: NDArray[np.float64]
    bytes: NDArray[np.float64]
    elements: NDArray[np.float64]
    fp32_plain: Flags

    def of(self, *classes: str) -> Flags:
        """Which operations are kernels of these classes."""
        return _are_of(self.class_, classes)


def kernel_work(
    trace: Trace, gpu: GpuColumns, shaped: Rows, properties: DeviceProperties | None, peaks: SpecPeaks | None
) -> KernelTable:
    """The work of one device's kernels.

    Args:
        gpu: Its operations; at least one.
        shaped: The operators with recorded shapes that launched them, or `NOT_FOUND`.
    """
    kernel = gpu.kind == KERNEL
    class_of_name = np.full(len(trace.names), -1, np.int8)
    for name in used(gpu.name[kernel]):
        class_of_name[name] = CLASSES.index(kernel_classes.kernel_class(trace.names[name]))
    class_ = np.where(kernel, class_of_name[gpu.name], -1).astype(np.int8)
    length = gpu.end - gpu.start
    blocks, threads = _blocks(trace, gpu.grid), _blocks(trace, gpu.block)
    communicates = _are_of(class_, [kernel_classes.COMMUNICATION])
    half = (properties.sms or 0) // 2 if properties is not None else 0
    small = (length < LATENCY_NS) | ((blocks > 0) & (blocks < half))
    streamed = _streamed(trace, gpu, blocks, threads)
    contracts = np.flatnonzero(_are_of(class_, CONTRACTIONS))
    flops, counted, ideal = _counted(trace, gpu, shaped, contracts, peaks)
    return KernelTable(
        class_=class_,
        underfilled=kernel & ~communicates & small,
        flops=flops,
        counted=counted,
        ideal_ns=ideal,
        bytes=streamed[0],
        elements=streamed[1],
        fp32_plain=_fp32_plain(trace, gpu, shaped, contracts),
    )


def _are_of(class_: NDArray[np.int8], classes: Sequence[str]) -> Flags:
    return np.isin(class_, [CLASSES.index(each) for each in classes])


def _blocks(trace: Trace, codes: NDArray[np.int32]) -> NDArray[np.int64]:
    table = np.array([*(_product(text) for text in trace.grids), 0], np.int64)
    return table[codes]  # code -1 is the last, 0: not recorded


@lru_cache(maxsize=16384)
def _product(text: bytes) -> int:
    try:
        sizes = msgspec.json.decode(text, type=list[int])
    except msgspec.DecodeError:
        return 0
    return min(prod(max(size, 0) for size in sizes), 2**40)


def _counted(
    trace: Trace, gpu: GpuColumns, shaped: Rows, contracts: Rows, peaks: SpecPeaks | None
) -> tuple[NDArray[np.float64], Flags, NDArray[np.float64]]:
    flops, ideal, counted = np.zeros(len(gpu)), np.zeros(len(gpu)), np.zeros(len(gpu), np.bool_)
    rows = contracts[shaped[contracts] != NOT_FOUND]
    rows = rows[np.lexsort((gpu.start[rows] - gpu.end[rows], shaped[rows]))]  # the longest first
    first = np.diff(shaped[rows], prepend=NOT_FOUND) != 0  # of each operator
    longest = rows[first]
    names, shapes = trace.host.name[shaped[longest]], trace.host.shape[shaped[longest]]

    def work(name: int, shape: int) -> int:
        """Nothing for doubles: spec sheets have another peak for them."""
        recorded = trace.shapes[shape]
        return 0 if inputs_are(recorded) == "fp64" else operator_flops(trace.names[name], recorded) or 0

    flops[longest] = _by_pair(names, shapes, work)
    counted[rows] = (flops[longest] > 0)[np.cumsum(first) - 1]
    if peaks is not None:
        roofs = _by_pair(gpu.name[longest], shapes, lambda name, shape: _peak(name, trace, shape, peaks))
        ideal[longest] = flops[longest] / roofs * 1e9
    return flops, counted, ideal


def _by_pair(
    names: NDArray[np.integer], shapes: NDArray[np.integer], found: Callable[[int, int], float]
) -> NDArray[np.float64]:
    """What is found for each name and shape, by their numbers (-1: no shape); each pair is asked once."""
    pairs, which = np.unique(names.astype(np.int64) << 32 | shapes.astype(np.int64) + 1, return_inverse=True)
    return np.array([found(pair >> 32, (pair & 0xFFFFFFFF) - 1) for pair in pairs.tolist()], np.float64)[
        which
    ]


def _peak(kernel: int, trace: Trace, shape: int, peaks: SpecPeaks) -> float:
    name, inputs = trace.names[kernel], inputs_are(trace.shapes[shape])
    tensor_cores = kernel_classes.uses_tensor_cores(name)
    if inputs == "fp8":
        return 2 * peaks.half_flops
    if inputs == "fp32":
        return peaks.tf32_flops if tensor_cores else peaks.fp32_flops
    return peaks.fp32_flops if tensor_cores is False and kernel_classes.names_fp32(name) else peaks.half_flops


def _fp32_plain(trace: Trace, gpu: GpuColumns, shaped: Rows, rows: Rows) -> Flags:
    """Contractions without tensor cores whose inputs are fp32, by shapes, else by the kernel's name."""
    found = np.zeros(len(gpu), np.bool_)
    by = shaped[rows]
    shapes = np.full(len(rows), -1, np.int64)
    shapes[by != NOT_FOUND] = trace.host.shape[by[by != NOT_FOUND]]  # a file may hold no event of the host
    found[rows] = _by_pair(gpu.name[rows], shapes, partial(_is_fp32_plain, trace)) > 0
    return found


def _is_fp32_plain(trace: Trace, name: int, shape: int) -> bool:
    text = trace.names[name]
    if kernel_classes.uses_tensor_cores(text) is not False or "gemv" in text:
        return False
    if shape >= 0 and trace.shapes[shape].types:
        return inputs_are(trace.shapes[shape]) == "fp32"
    return kernel_classes.names_fp32(text)


def _streamed(
    trace: Trace, gpu: GpuColumns, blocks: NDArray[np.int64], threads: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bytes and elements of ATen's streaming kernels: blocks x threads x items each (x pointers x item size).

    An upper estimate by up to one block: the last one may be partly empty.
    """
    factors = np.zeros((2, len(trace.names)))
    for name in used(gpu.name[gpu.kind == KERNEL]):
        factors[:, name] = _per_thread(trace.names[name])
    in_bytes, in_elements = factors[:, gpu.name] * blocks * threads
    return in_bytes, in_elements


def _per_thread(name: str) -> tuple[float, float]:
    """Bytes and elements of one thread; nothing where the name does not tell."""
    kind, pointers = _STREAMING.search(name), _POINTERS.search(name)
    if kind is None or pointers is None:
        return 0.0, 0.0
    width = int(kind.group(2) or 4)
    items = max(4, width) if kind.group(1) == "vectorized" else 4
    item = next((size for mark, size in _ITEM_BYTES if mark in name), None)
    return (0.0, 0.0) if item is None else (float(items * int(pointers.group(1)) * item), float(items))
