"""What lies in the tensors and arrays that a dataset holds: whether it is otherwise by now; it put back.

In: tensors and arrays that a walk has met. Large ones are data that nobody counts in: they are left alone,
and so is what a file is mapped to.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, cast

MOST_BYTES_EACH = 1 << 24
MOST_BYTES = 1 << 26  # the job waits while they are copied: some 0.2 s


class _Contents(Protocol):
    """What is used of tensors and arrays."""

    nbytes: int
    flags: Any

    def __buffer__(self, flags: int, /) -> memoryview: ...
    def tobytes(self) -> bytes: ...
    def copy(self) -> _Contents: ...
    def clone(self) -> _Contents: ...
    def detach(self) -> _Contents: ...
    def copy_(self, other: _Contents) -> object: ...
    def __setitem__(self, place: object, value: object) -> None: ...


def marks_of(contents: Iterable[object]) -> list[tuple[object, int]]:
    """Each with a mark that is another one once it has been written to."""
    return [(each, mark_of(each)) for each in _small(contents)]


def mark_of(contents: object) -> int:
    """A tensor's count of writes, a checksum of an array."""
    version = getattr(contents, "_version", None)
    if version is not None:
        return int(version)
    held = cast("_Contents", contents)
    return zlib.crc32(held if held.flags.c_contiguous else held.tobytes())


class ContentCopies:
    """Of tensors and arrays, until they are put back."""

    def __init__(self, contents: Iterable[object]) -> None:
        self._kept = [(each, mark_of(each), copy_of(each)) for each in _small(contents)]

    def put_back(self) -> None:
        """Make those that were written to as they were."""
        for each, mark, kept in self._kept:
            if mark_of(each) == mark:
                continue
            if hasattr(each, "copy_"):
                cast("_Contents", each).detach().copy_(cast("_Contents", kept))
            else:
                cast("_Contents", each)[...] = kept


def copy_of(contents: object) -> object:
    """A tensor or an array with memory of its own."""
    held = cast("_Contents", contents)
    return held.detach().clone() if hasattr(contents, "clone") else held.copy()


def _small(contents: Iterable[object]) -> Iterator[object]:
    """Those that can be kept."""
    left = MOST_BYTES
    for each in contents:
        size = int(getattr(each, "nbytes", MOST_BYTES_EACH + 1))
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
    below = contents
    while below is not None:
        if type(below).__name__ in ("memmap", "mmap"):
            return False
        below = getattr(below, "base", None)
    return bool(contents.flags.writeable) and not contents.dtype.hasobject  # type: ignore[attr-defined]
