"""The batch size and the count of tokens, as the shapes of a batch or of a root call show them.

Shapes and kinds of numbers only: no tensor is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_DEEP = 3
_WIDE = 8


def batch_size(args: object, kwargs: Mapping[str, object] | None = None) -> int:
    """First dimension of the first tensor with one; -1 where there is none."""
    found = _first(args, _DEEP)
    if found < 0 and kwargs:
        found = _first(kwargs, _DEEP)
    return found


def token_count(args: object, kwargs: Mapping[str, object] | None = None) -> int:
    """Elements of the first tensor of whole numbers with two dimensions, [batch, length]; -1 without one.

    Padding counts: what is padding can't be told from a shape.
    """
    found = _tokens(args, _DEEP)
    if found < 0 and kwargs:
        found = _tokens(kwargs, _DEEP)
    return found


def _first(thing: object, deep: int) -> int:
    shape = getattr(thing, "shape", None)
    if isinstance(shape, tuple):
        size = shape[0] if shape else -1
        return size if type(size) is int else -1
    if deep:
        for part in _parts(thing):
            size = _first(part, deep - 1)
            if size >= 0:
                return size
    return -1


def _tokens(thing: object, deep: int) -> int:
    shape = getattr(thing, "shape", None)
    if isinstance(shape, tuple):
        if len(shape) != 2 or not _counts(getattr(thing, "dtype", None)):
            return -1
        count = shape[0] * shape[1]
        return count if type(count) is int else -1
    if deep:
        for part in _parts(thing):
            count = _tokens(part, deep - 1)
            if count >= 0:
                return count
    return -1


def _counts(dtype: object) -> bool:
    """A torch dtype of whole numbers; those of a mask are none."""
    floats = getattr(dtype, "is_floating_point", None), getattr(dtype, "is_complex", None)
    return floats == (False, False) and str(dtype) != "torch.bool"


def _parts(thing: object) -> Iterator[object]:
    if isinstance(thing, (tuple, list)):
        yield from thing[:_WIDE]
    elif isinstance(thing, Mapping):
        yield from list(thing.values())[:_WIDE]
