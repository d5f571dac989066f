"""Floating-point operations of matrix products, convolutions and attention, from operand shapes.

A multiply and an add count as two. All other operators count as none: their share of the
operations is small (seed: 0.2 % in BERT).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Protocol, cast


class _Shaped(Protocol):
    shape: Sequence[int]


def of(operator: object, args: Sequence[object], result: object) -> int:
    """FLOPs of one operator call; 0 for operators without a formula."""
    name = str(getattr(operator, "__name__", "")).partition(".")[0]
    if name in ("mm", "bmm"):
        return _product(args[0], args[1])
    if name in ("addmm", "baddbmm"):
        return _product(args[1], args[2])
    if name in ("convolution", "_convolution"):
        return _convolution(args[0], args[1], result, transposed=bool(args[6]))
    if name == "convolution_backward":
        wanted = cast("Sequence[bool]", args[10])
        forward = _convolution(args[1], args[2], args[0], transposed=bool(args[7]))
        return forward * (int(wanted[0]) + int(wanted[1]))
    if name.startswith("_scaled_dot_product") and "attention" in name:
        if "backward" in name:
            return _attention(args[1], args[2], args[3]) * 5 // 2  # five products against two
        return _attention(args[0], args[1], args[2])
    return 0


def _shape(thing: object) -> tuple[int, ...]:
    return tuple(cast(_Shaped, thing).shape)


def _product(left: object, right: object) -> int:
    return 2 * prod(_shape(left)) * _shape(right)[-1]


def _convolution(source: object, weight: object, result: object, *, transposed: bool) -> int:
    kernel = _shape(weight)
    spatial = _shape(source)[2:] if transposed else _shape(result)[2:]
    return 2 * _shape(source)[0] * prod(kernel) * prod(spatial)


def _attention(query: object, key: object, value: object) -> int:
    *lead, rows, width = _shape(query)
    columns, out = _shape(key)[-2], _shape(value)[-1]
    return 2 * prod(lead) * rows * columns * (width + out)
