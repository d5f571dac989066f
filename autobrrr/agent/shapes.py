"""The batch size, as the first tensor of a batch or of a root call shows it."""

from __future__ import annotations

from collections.abc import Mapping

_DEEP = 3
_WIDE = 8


def batch_size(args: object, kwargs: Mapping[str, object] | None = None) -> int:
    """First dimension of the first tensor with one; -1 where there is none."""
    found = _first(args, _DEEP)
    if found < 0 and kwargs:
        found = _first(kwargs, _DEEP)
    return found


def _first(thing: object, deep: int) -> int:
    shape = getattr(thing, "shape", None)
    if isinstance(shape, tuple):
        size = shape[0] if shape else -1
        return size if type(size) is int else -1
    if deep:
        parts: list[object] = []
        if isinstance(thing, (tuple, list)):
            parts = list(thing[:_WIDE])
        elif isinstance(thing, Mapping):
            parts = list(thing.values())[:_WIDE]
        for part in parts:
            size = _first(part, deep - 1)
            if size >= 0:
                return size
    return -1
