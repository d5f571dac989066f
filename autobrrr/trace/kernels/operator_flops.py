"""Floating-point operations of contractions, from the shapes that the profiler recorded.

In comes one operator's name and its arguments as JSON, out goes the number of multiplies and adds
(two for each pair), or None where shapes do not tell. The formulas are those of the textbook.
"""

from __future__ import annotations

from math import prod
from typing import Literal

import msgspec

from autobrrr.trace.reading.trace_columns import OperatorShape

Dims = list[int]
_TRANSPOSED_AT, _TRANSPOSED_BACKWARD_AT = 6, 7  # of a convolution's arguments, and of its backward's


def operator_flops(name: str, shape: OperatorShape) -> int | None:
    """Floating-point operations of one call."""
    dims = recorded_dims(shape.dims)
    if dims is None:
        return None
    stem = name.rsplit("::", maxsplit=1)[-1].lstrip("_")
    try:
        found = _flops(stem, dims, shape)
    except (IndexError, ValueError, TypeError, ZeroDivisionError, msgspec.DecodeError):
        return None
    return found if found is not None and found > 0 else None


def inputs_are(shape: OperatorShape) -> Literal["fp64", "fp32", "fp8"] | None:
    """What a contraction's inputs are; None where they are of 16 bits, or of two types, or not recorded."""
    types = _texts(shape.types)
    if "double" in types[:2]:
        return "fp64"
    if any("Float8" in each for each in types[:2]):
        return "fp8"
    floats = [each for each in types if each in ("float", "c10::Half", "c10::BFloat16")]
    return "fp32" if floats[:2] == ["float", "float"] else None


def _flops(stem: str, dims: list[Dims], shape: OperatorShape) -> int | None:
    if stem in ("mm", "scaled_mm", "mv"):
        return _product(dims[0], dims[1])
    if stem in ("addmm", "addmv", "baddbmm", "addbmm"):
        return _product(dims[1], dims[2])
    if stem in ("bmm", "matmul"):
        return _product(dims[0], dims[1])
    if stem == "dot":
        return 2 * dims[0][0]
    if stem == "linear":
        rows = prod(dims[0][:-1])
        return 2 * rows * dims[0][-1] * dims[1][0]
    if "backward" in stem and "conv" in stem:
        return _convolution_backward(dims, shape)
    if "conv" in stem:
        return _convolution(stem, dims, shape)
    if stem in _CAUSAL_AT:
        return _attention(stem, dims, shape)
    return None


def _product(one: Dims, other: Dims) -> int | None:
    if len(one) < 1 or len(other) < 1:
        return None
    if len(one) == 1:
        return 2 * prod(other)
    inner = one[-1]
    columns = other[-1] if len(other) > 1 else 1
    if (len(other) > 1 and other[-2] != inner) or (len(other) == 1 and other[0] != inner):
        return None
    batch = max(prod(one[:-2]), prod(other[:-2]))
    return 2 * batch * one[-2] * inner * columns


def _convolution(stem: str, dims: list[Dims], shape: OperatorShape) -> int | None:
    """The weight is applied at each position of the output, of a transposed one at each of the input.

    Output positions come from input, stride, padding and dilation where those were recorded.
    """
    source, weight = dims[0], dims[1]
    if len(source) < 3 or len(weight) != len(source):
        return None
    turned = "transpose" in stem or (stem.startswith("convolution") and _is_true(shape, _TRANSPOSED_AT))
    spatial = source[2:] if turned else _output(stem, source[2:], weight[2:], shape)
    if spatial is None:
        return None
    return 2 * source[0] * prod(spatial) * prod(weight)


def _convolution_backward(dims: list[Dims], shape: OperatorShape) -> int | None:
    """Gradient, input, weight: each of the two gradients costs as much as the forward pass."""
    weight = dims[2]
    at = dims[1 if _is_true(shape, _TRANSPOSED_BACKWARD_AT) else 0]
    if len(at) < 3 or len(weight) != len(at):
        return None
    return 2 * 2 * at[0] * prod(at[2:]) * prod(weight)


def _is_true(shape: OperatorShape, place: int) -> bool:
    """Whether the value at a place of the arguments was recorded, and is true."""
    return _texts(shape.concrete)[place : place + 1] == ["True"]


def _output(stem: str, source: Dims, kernel: Dims, shape: OperatorShape) -> Dims | None:
    # Stride, padding, dilation: the first lists of integers among the recorded values.
    texts = [each for each in _texts(shape.concrete) if each.startswith("[")]
    lists = [msgspec.json.decode(each, type=list[int]) for each in texts]
    if len(lists) < 3:
        return None
    if stem.startswith(("cudnn", "miopen")):  # these take the padding before the stride
        lists[0], lists[1] = lists[1], lists[0]
    stride, padding, dilation = (each * len(source) if len(each) == 1 else each for each in lists[:3])
    return [
        (size + 2 * pad - spread * (width - 1) - 1) // step + 1
        for size, width, step, pad, spread in zip(source, kernel, stride, padding, dilation, strict=True)
    ]


_CAUSAL_AT = {  # which argument says that the upper half of the weights is masked
    "scaled_dot_product_flash_attention": 4,
    "scaled_dot_product_efficient_attention": 6,
    "scaled_dot_product_cudnn_attention": 6,
    "flash_attention_forward": 8,
}


def _attention(stem: str, dims: list[Dims], shape: OperatorShape) -> int | None:
    """Two products, of queries with keys and of weights with values; half of them where causal.

    Only where the operator says whether it is: a mask in other forms would be counted as work.
    """
    place, values = _CAUSAL_AT[stem], _texts(shape.concrete)
    if values[place] not in ("True", "False"):
        return None
    query, key = dims[0], dims[1]
    if len(query) != 4 or len(key) != 4:
        return None
    batch, rows, columns, size = query[0] * query[1], query[2], key[2], query[3]
    if stem == "flash_attention_forward":  # [batch, sequence, heads, size]
        batch, rows, columns = query[0] * query[2], query[1], key[1]
    return 2 * 2 * batch * rows * columns * size // (2 if values[place] == "True" else 1)


def _texts(text: bytes) -> list[str]:
    try:
        return msgspec.json.decode(text, type=list[str]) if text else []
    except msgspec.DecodeError:
        return []


def recorded_dims(text: bytes) -> list[Dims] | None:
    """The sizes of each argument; empty for what is no tensor."""
    try:
        raw = msgspec.json.decode(text, type=list[list[object]])
    except msgspec.DecodeError:
        return None
    return [
        [int(size) for size in each if isinstance(size, int)]
        if all(isinstance(size, int) for size in each)
        else []
        for each in raw
    ]
