"""Floating-point operations of matrix products, convolutions and attention, from operand shapes.

A multiply and an add count as two. All other operators count as none: their share of the
operations is small (seed: 0.2 % in BERT).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any


def of(operator: object, args: Sequence[Any], result: Any) -> int:
    """FLOPs of one operator call; 0 for operators without a formula."""
    name = str(getattr(operator, "__name__", "")).partition(".")[0]
    if name in ("mm", "bmm"):
        return _product(args[0], args[1])
    if name in ("addmm", "baddbmm"):
        return _product(args[1], args[2])
    if name in ("convolution", "_convolution"):
        return _convolution(args[0], args[1], result, transposed=bool(args[6]))
    if name == "convolution_backward":
        forward = _convolution(args[1], args[2], args[0], transposed=bool(args[7]))
        return forward * (int(args[10][0]) + int(args[10][1]))
    if name.startswith("_scaled_dot_product") and "attention" in name:
        if "backward" in name:
            return _attention(args[1], args[2], args[3]) * 5 // 2  # five products against two
        return _attention(args[0], args[1], args[2])
    return 0


def _product(left: Any, right: Any) -> int:
    return int(2 * prod(left.shape) * right.shape[-1])


def _convolution(source: Any, weight: Any, result: Any, *, transposed: bool) -> int:
    spatial = (source if transposed else result).shape[2:]
    return int(2 * source.shape[0] * prod(weight.shape) * prod(spatial))


def _attention(query: Any, key: Any, value: Any) -> int:
    *lead, rows, width = query.shape
    return int(2 * prod(lead) * rows * key.shape[-2] * (width + value.shape[-1]))
