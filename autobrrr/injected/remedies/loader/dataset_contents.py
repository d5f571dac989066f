"""What lies in the tensors and arrays that a dataset holds: whether it is otherwise by now.

In: tensors and arrays that a walk has met. Of large ones some elements are looked at, evenly spread; a tensor
counts its writes besides, an array does not. What a file is mapped to is left alone.
"""

from __future__ import annotations

import copy
import ctypes
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, cast

from ...job_state.module_state import array_type

MOST_BYTES_EACH = 1 << 24
MOST_BYTES = 1 << 26  # the job waits while they are copied: some 0.2 s
MOST_SAMPLED = 1 << 16  # elements of a large one


class _Contents(Protocol):
    """What is used of tensors and arrays."""

    nbytes: int
    flags: Any

    def __buffer__(self, flags: int, /) -> memoryview: ...
    def tobytes(self) -> bytes: ...
    def clone(self) -> _Contents: ...
    def detach(self) -> _Contents: ...


class ContentMarks:
    """Of tensors and arrays: others once they have been written to.

    Attributes:
        are_whole: No write would go unseen.
    """

    def __init__(self, contents: Iterable[object]) -> None:
        met = list(contents)
        self._objects = list(map(objects_in, met))  # kept, so that where one lies no other one does
        small = {id(each) for each in _small(met)}
        self._kept = [(each, id(each) in small, _mark_of(each, whole=id(each) in small)) for each in met]
        self.are_whole = all(
            whole or _counts_writes(each) or _is_mapped(each) for each, whole, _ in self._kept
        )

    @property
    def are_as_they_were(self) -> bool:
        return all(_mark_of(each, whole=whole) == mark for each, whole, mark in self._kept)


def _mark_of(contents: object, *, whole: bool) -> tuple[int | None, int | None]:
    """A tensor's count of writes; a checksum, of some elements where it is large."""
    if not hasattr(contents, "element_size"):
        return None, _checksum(contents, whole=whole)
    tensor = cast("Any", contents)
    version = int(tensor._version) if _counts_writes(contents) else None
    plain = type(contents).__name__ in ("Tensor", "Parameter")
    if not plain or str(tensor.device.type) != "cpu" or str(tensor.layout) != "torch.strided":
        return version, None
    flat = tensor.detach()
    if not whole and not flat.is_contiguous():
        return version, None
    flat = flat.contiguous().reshape(-1)
    flat = flat if whole else flat[:: _stride(flat.numel())].contiguous()
    return version, zlib.crc32(raw_bytes(flat))


def raw_bytes(flat: object) -> memoryview:
    """What lies in a contiguous tensor. Its `numpy()` would keep the job from resizing it ever after."""
    tensor = cast("Any", flat)
    size = tensor.numel() * tensor.element_size()
    held = (ctypes.c_ubyte * size).from_address(tensor.data_ptr()) if size else b""
    return memoryview(held).cast("B")


def _checksum(array: object, *, whole: bool) -> int | None:
    if _is_mapped(array):
        return None
    held = cast("Any", array)
    if not hasattr(held, "flags"):  # Python's own
        return zlib.crc32(memoryview(held) if whole else memoryview(held)[:MOST_SAMPLED])
    numpy: Any = array_type(type(array))
    held = numpy.view(held, numpy)  # as it lies there, whatever its class gives out
    if not whole:
        held = (
            held.reshape(-1)[:: _stride(held.size)] if held.flags.c_contiguous else held.flat[:MOST_SAMPLED]
        )
    return zlib.crc32(held.tobytes())  # of objects: where they lie


def _stride(elements: int) -> int:
    return max(1, elements // MOST_SAMPLED)


def _counts_writes(contents: object) -> bool:
    return hasattr(contents, "element_size") and not contents.is_inference()  # type: ignore[attr-defined]


def objects_in(contents: object) -> list[object]:
    """What an array of objects leads to."""
    holds = getattr(getattr(contents, "dtype", None), "hasobject", False)
    return cast("Any", contents).ravel().tolist() if holds else []


def copy_of(contents: object) -> object:
    """A tensor or an array with memory of its own."""
    held = cast("_Contents", contents)
    return held.detach().clone() if hasattr(contents, "clone") else copy.copy(contents)


def bytes_of(contents: object) -> int:
    """How much memory it takes."""
    size = getattr(contents, "nbytes", None)
    return memoryview(contents).nbytes if size is None else int(size)  # type: ignore[arg-type]


def _small(contents: Iterable[object]) -> Iterator[object]:
    """Those that can be looked at whole."""
    left = MOST_BYTES
    for each in contents:
        size = bytes_of(each)
        if size <= min(left, MOST_BYTES_EACH) and _is_plain(each):
            left -= size
            yield each


def _is_plain(contents: object) -> bool:
    """Whether it lies in this process's own memory, each element in a place for itself."""
    if hasattr(contents, "element_size"):
        kind, layout = str(contents.device.type), str(contents.layout)  # type: ignore[attr-defined]
        if kind != "cpu" or layout != "torch.strided" or contents.is_inference():  # type: ignore[attr-defined]
            return False
        places = zip(contents.stride(), contents.shape, strict=True)  # type: ignore[attr-defined]
        return not any(step == 0 and size > 1 for step, size in places)
    return not _is_mapped(contents)


def _is_mapped(contents: object) -> bool:
    below: object = contents
    while below is not None:
        if type(below).__name__ in ("memmap", "mmap"):
            return True
        below = getattr(below, "base", None)
    return False
