"""Advice that only recorded shapes can give: attention written out.

In come a device's kernels with the shapes of the operators that launched them, out go a bound of
what would be saved, how often, and an example by its sizes.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from msgspec import Struct

from autobrrr.trace.causes.idle_causes import NOT_FOUND
from autobrrr.trace.device.device_work import DeviceWork
from autobrrr.trace.kernels.kernel_classes import CLASSES, CONTRACTIONS
from autobrrr.trace.kernels.operator_flops import recorded_dims
from autobrrr.trace.reading.trace_columns import KERNEL, OperatorShape, coded

_SMALL_ATTENTION = 32  # sequences below it are no attention worth fusing
_LONGEST_CHAIN = 12  # kernels from one product to the next

Dims = list[int]


class WrittenAttention(Struct, frozen=True, kw_only=True):
    saves_ns: int
    kernels: int
    example: str  # "8x1024x1023"


def written_attention(device: DeviceWork) -> WrittenAttention | None:
    """Kernels between two products with a softmax among them, over a matrix that the first one made.

    A softmax over [..., rows, columns] after a batched product of such a size is one of attention
    weights; whatever runs between that product and the next one goes over them.
    """
    gpu, work, trace = device.gpu, device.work, device.trace
    order = np.flatnonzero(gpu.kind == KERNEL)
    order = order[np.lexsort((gpu.start[order], gpu.stream[order]))]
    contracts = coded(work.class_[order], [CLASSES.index(each) for each in CONTRACTIONS])
    length = (gpu.end - gpu.start)[order]
    saves = kernels = 0
    weights: Counter[str] = Counter()
    known: dict[int, Dims | None] = {}
    priced = -1
    for place in np.flatnonzero(~contracts & (device.by.shaped[order] != NOT_FOUND)).tolist():
        operator = int(device.by.shaped[order[place]])
        if "softmax" not in trace.names[trace.host.name[operator]]:
            continue
        shape = int(trace.host.shape[operator])
        if shape not in known:
            known[shape] = _weights(trace.shapes[shape])
        sizes = known[shape]
        before, after = place - 1, place + 1
        while before >= 0 and not contracts[before]:
            before -= 1
        while after < len(order) and not contracts[after]:
            after += 1
        if sizes is None or before < 0 or after - before > _LONGEST_CHAIN or after == len(order):
            continue
        if len(set(gpu.stream[order[[before, after]]].tolist())) > 1:
            continue
        if _product_of(device, int(order[before])) != tuple(sizes[-2:]):
            continue
        if before == priced:  # a softmax of several kernels
            continue
        priced = before
        saves += int(length[before + 1 : after].sum())
        kernels += after - before - 1
        weights["x".join(map(str, sizes))] += 1
    if not weights:
        return None
    return WrittenAttention(saves_ns=saves, kernels=kernels, example=weights.most_common(1)[0][0])


def _weights(shape: OperatorShape) -> Dims | None:
    """The sizes of what a softmax goes over, where they could be attention weights."""
    dims = recorded_dims(shape.dims)
    if not dims or len(dims[0]) < 3 or min(dims[0][-2:]) < _SMALL_ATTENTION:
        return None
    return dims[0]


def _product_of(device: DeviceWork, row: int) -> tuple[int, int] | None:
    """Rows and columns of the batched product that a kernel is of."""
    operator = int(device.by.shaped[row])
    if operator == NOT_FOUND:
        return None
    dims = recorded_dims(device.trace.shapes[device.trace.host.shape[operator]].dims) or []
    if device.trace.names[device.trace.host.name[operator]].endswith("baddbmm"):
        dims = dims[1:]
    if len(dims) < 2 or min(len(dims[0]), len(dims[1])) < 3:
        return None
    return dims[0][-2], dims[1][-1]
