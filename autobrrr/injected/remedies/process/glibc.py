"""glibc's allocator in this process: its calls, its statistics, and the words of its own data.

The calls are the documented ones. Its data is read to learn what no call tells: where its thresholds stand.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

from ..registry import Refused

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_TEST = -1, -3, -7
OTHERS = ("jemalloc", "tcmalloc", "mimalloc")
IS_MMAPPED = 2  # of the size word before a block (malloc.c: struct malloc_chunk)


def glibc() -> Libc:
    """The C library of this process.

    Raises:
        Refused: another allocator serves the process.
    """
    if not hasattr(_library(), "gnu_get_libc_version"):
        raise Refused("the C library is not glibc")
    found = _maps()
    for name in OTHERS:
        if f"/lib{name}" in found:
            raise Refused(f"the job's allocator is {name}")
    return _process()


def _maps() -> str:
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return maps.read()


def data_of(function: int, maps: str) -> list[tuple[int, int]]:
    """Start and end of the writable parts of the file that a function's address lies in.

    Args:
        function: The address.
        maps: The text of `/proc/self/maps`.
    """
    writable: dict[str, list[tuple[int, int]]] = {}
    home = None
    for line in maps.splitlines():
        span, access, _, device, inode, *_ = line.split(maxsplit=5)
        start, end = (int(each, 16) for each in span.split("-"))
        file = f"{device} {inode}"
        if inode != "0" and start <= function < end:
            home = file
        if access.startswith("rw"):
            writable.setdefault(file, []).append((start, end))
    return [] if home is None else writable.get(home, [])


_FIELDS = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
    *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
)


class _Info(ctypes.Structure):
    """struct mallinfo. `arena`: bytes of all heaps; `fordblks`: free ones; `keepcost`: free at the top."""

    _fields_ = [(name, ctypes.c_int) for name in _FIELDS]
    arena: int
    fordblks: int
    keepcost: int


class _Info2(ctypes.Structure):
    """struct mallinfo2."""

    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS]
    arena: int
    fordblks: int
    keepcost: int


class Libc:
    """What is used of the C library.

    Attributes:
        plugs: Blocks that fill holes of the heap while `host.malloc` is off.
    """

    def __init__(self) -> None:
        library = _library()
        self.mallopt: Callable[[int, int], int] = library.mallopt
        self.malloc_trim: Callable[[int], int] = library.malloc_trim
        allocate, release = library.malloc, library.free
        allocate.argtypes, allocate.restype = (ctypes.c_size_t,), ctypes.c_void_p
        release.argtypes, release.restype = (ctypes.c_void_p,), None
        self.malloc: Callable[[int], int | None] = allocate
        self.free: Callable[[int], None] = release
        self.plugs: list[int] = []
        self._data = data_of(ctypes.cast(library.mallopt, ctypes.c_void_p).value or 0, _maps())
        wide = hasattr(library, "mallinfo2")  # since glibc 2.33; before it the fields were of 32 bits
        self._info: Callable[[], _Info] = library.mallinfo2 if wide else library.mallinfo
        self._info.restype = _Info2 if wide else _Info

    def heap_bytes(self) -> int:
        """Bytes of all heaps, free ones included, without mappings; it may wrap around before glibc 2.33."""
        return int(self._info().arena)

    def hole_bytes(self) -> int:
        """Free bytes inside all heaps, without the one at the top; it may wrap around before glibc 2.33."""
        info = self._info()
        return int(info.fordblks) - int(info.keepcost)

    def is_mapping(self, block: int) -> bool:
        """Whether a block is a mapping of its own, not a part of the heap."""
        return bool(self.word(block - ctypes.sizeof(ctypes.c_size_t)) & IS_MMAPPED)

    def own_data(self) -> list[tuple[int, bytes]]:
        """The writable data of the library: address and content of each part, whole words."""
        return [(start, ctypes.string_at(start, end - start)) for start, end in self._data]

    def word(self, address: int) -> int:
        """The size_t at an address of its data."""
        return ctypes.c_size_t.from_address(address).value

    def flag(self, address: int) -> int:
        """The int at an address of its data."""
        return ctypes.c_int.from_address(address).value

    def set_flag(self, address: int, value: int) -> None:
        """Write the int at an address of its data."""
        ctypes.c_int.from_address(address).value = value


@functools.cache
def _library() -> ctypes.CDLL:
    """Made once: each one is a class of its own, which only a collection ends."""
    return ctypes.CDLL(None)


@functools.cache
def _process() -> Libc:
    return Libc()
