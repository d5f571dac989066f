"""The batch size and the count of tokens, as the shapes of a batch or of a root call show them.

Reads shapes and dtypes only, never values, and no torch mode sees it. Looks at arrays and at Python's own
containers, so no other class of the job runs code for us.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice

from ..live_torch.dispatch_modes import unseen
from ..live_torch.job_signals import ANY

ARRAYS = ("torch", "numpy", "tensordict")
MOST_KEPT = 1 << 17  # elements
_DEEP = 3
_WIDE = 8
Measure = Callable[[object, "tuple[int, ...]"], int]


def batch_size(args: object, kwargs: Mapping[str, object] | None = None) -> int:
    """First dimension of the first tensor with one; -1 where there is none."""
    return _first(lambda _, shape: shape[0] if shape else -1, args, kwargs)[1]


def token_count(args: object, kwargs: Mapping[str, object] | None = None) -> int:
    """Elements of the first tensor of whole numbers with two dimensions, [batch, length]; -1 without one.

    Padding counts: what is padding can't be told from a shape.
    """
    return _first(_elements, args, kwargs)[1]


def texts_of(batch: object) -> list[object]:
    """The tensor whose elements `token_count` counts; none without one, or of a large one."""
    with unseen():
        text, size = _first(_elements, batch, None)
        return [text] if 0 < size <= MOST_KEPT and getattr(text, "is_cpu", False) else []


def byte_count(batch: object) -> int:
    """Bytes of the tensors and arrays of a batch, as far as it shows them."""
    found = 0
    with unseen():
        for each in arrays(batch):
            with ANY:  # a sparse tensor raises
                size = getattr(each, "nbytes", None)
                found += size if type(size) is int else 0
    return found


def _first(of: Measure, args: object, kwargs: Mapping[str, object] | None) -> tuple[object, int]:
    """The first that is known, of the arguments in their order, and what it belongs to."""
    with unseen(), ANY:
        for each in chain(arrays(args), arrays(kwargs)):
            shape: object = None
            with ANY:  # a nested tensor has no sizes, a property may raise anything
                shape = getattr(each, "shape", None)
            size = of(each, shape) if isinstance(shape, tuple) else -1
            if type(size) is int and size >= 0:
                return each, size
    return None, -1


def arrays(thing: object, deep: int = _DEEP) -> Iterator[object]:
    """Tensors and arrays in there. Nothing of them is read: `torch.jit.trace` would record their shapes."""
    if _is_array(thing):
        yield thing
    elif deep:
        for part in _parts(thing):
            yield from arrays(part, deep - 1)


def _is_array(thing: object) -> bool:
    kinds = () if isinstance(thing, (tuple, list, dict)) else type(thing).__mro__
    return any(str(kind.__module__).startswith(ARRAYS) for kind in kinds)


def _elements(tensor: object, shape: tuple[int, ...]) -> int:
    """Of two dimensions and whole numbers; those of a mask are none."""
    dtype = getattr(tensor, "dtype", None)
    floats = getattr(dtype, "is_floating_point", None), getattr(dtype, "is_complex", None)
    whole = floats == (False, False) and str(dtype) != "torch.bool"
    return shape[0] * shape[1] if len(shape) == 2 and whole else -1


def _parts(thing: object) -> Iterator[object]:
    if isinstance(thing, tuple):
        yield from tuple.__getitem__(thing, slice(_WIDE))
    elif isinstance(thing, list):
        yield from list.__getitem__(thing, slice(_WIDE))
    elif isinstance(thing, dict):
        yield from list(islice(dict.values(thing), _WIDE))
    elif isinstance(thing, UserDict):
        yield from _parts(vars(thing).get("data"))
