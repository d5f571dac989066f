"""`host.malloc`: glibc's allocator keeps large blocks instead of giving them back after every operator.

A block above the mmap threshold is a mapping of its own: made, page-faulted in and unmapped for each
temporary tensor. glibc raises that threshold by itself, to 32 MiB at most, and only where blocks are freed in
a favourable order. With both thresholds high, temporaries come from memory that the process has already.
"""

from __future__ import annotations

import ctypes
import functools
import os
import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

from .registry import Option, Refused, Undo, remedy

if TYPE_CHECKING:
    from autobrrr.agent.job import Job

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
DEFAULT_BYTES = 128 << 10
MOST_BYTES = 32 << 20  # where glibc's own raising of the threshold ends
KEPT_BYTES = (1 << 31) - 1
SETTINGS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_TOP_PAD_")
TUNABLES, TUNABLE = "GLIBC_TUNABLES", "glibc.malloc."
OTHERS = ("jemalloc", "tcmalloc", "mimalloc")
# With tensors of 36 MiB a step has 184,340 page faults before and after the undo, none with it, but for the
# first three steps or so each time.
SETTLES_STEPS = 3
PLUGGING_S = 0.02  # at most, at each undo
_on = False


class Libc(Protocol):
    """What is used of the C library."""

    threshold_before: int | None  # as measured before the first switching on, after which it is fixed
    plugs: list[int]  # blocks that fill the heap while it is off

    def mallopt(self, parameter: int, value: int, /) -> int: ...
    def malloc(self, size: int, /) -> int | None: ...
    def free(self, block: int, /) -> None: ...
    def malloc_trim(self, pad: int, /) -> int: ...
    def size_word(self, block: int, /) -> int: ...
    def heap_bytes(self) -> int:
        """Bytes of all heaps, free ones included, without mappings; it may wrap around."""
        ...


def _release(torch: ModuleType) -> None:
    """Give the heap back what was kept from it."""
    _unplug(_process())


@remedy(
    "host.malloc",
    treats=("memory", "overhead", "underfilled"),
    reach="live",
    cls="bitwise",
    doc="Let glibc keep large freed blocks for the next tensor instead of returning them to the system.",
    targets=("malloc",),
    settles_steps=SETTLES_STEPS,
    release=_release,
    options=(
        Option(
            name="mmap_threshold",
            kind="int",
            default=1 << 30,
            low=1 << 20,
            high=1 << 30,
            doc="Bytes from which a block is a mapping of its own.",
        ),
        Option(
            name="trim_threshold",
            kind="int",
            default=KEPT_BYTES,
            low=1 << 20,
            high=KEPT_BYTES,
            doc="Free bytes at the top of the heap above which they are given back.",
        ),
    ),
)
def malloc(job: Job, options: Mapping[str, object]) -> Undo:
    refuse_own_settings(os.environ)
    return keep_blocks(
        glibc(),
        int(str(options.get("mmap_threshold", 1 << 30))),
        int(str(options.get("trim_threshold", KEPT_BYTES))),
    )


def refuse_own_settings(environment: Mapping[str, str]) -> None:
    """Refuse where the user has set what can't be read back and put back.

    Raises:
        Refused: with the variable.
    """
    for name in SETTINGS:
        if name in environment:
            raise Refused(f"{name} stands in the environment: the thresholds are the user's own")
    if TUNABLE in environment.get(TUNABLES, ""):
        raise Refused(f"{TUNABLES} sets up glibc's allocator: the thresholds are the user's own")


def keep_blocks(libc: Libc, mmap_threshold: int, trim_threshold: int) -> Undo:
    """Raise both thresholds.

    The undo sets what was measured before. glibc does not raise that by itself any more: once set by hand, a
    threshold is fixed for the life of the process.

    Raises:
        Refused: it is on already, this glibc does not take the values, or blocks above the threshold that it
            raises by itself are no mappings: somebody has set it, or there is nothing to gain.
    """
    global _on
    if _on:
        raise Refused("glibc keeps large blocks already")
    probes: list[int] = []
    # Measured once: what was freed with it on would serve the probes of a second time.
    before = libc.threshold_before or mmap_threshold_now(libc, probes)
    if before is None:
        for block in probes:
            libc.free(block)
        raise Refused("blocks of 32 MiB come from the heap already")
    libc.threshold_before = before
    # From here on freeing a probe does not move the threshold.
    taken = libc.mallopt(M_MMAP_THRESHOLD, mmap_threshold) or libc.mallopt(M_MMAP_THRESHOLD, MOST_BYTES)
    for block in probes:
        libc.free(block)
    _unplug(libc)
    if not taken or not libc.mallopt(M_TRIM_THRESHOLD, trim_threshold):
        raise Refused("this glibc takes no other thresholds")
    _on = True

    def undo() -> None:
        global _on
        if _on:
            _on = False
            _plug(libc, before)
            libc.mallopt(M_MMAP_THRESHOLD, before)
            libc.mallopt(M_TRIM_THRESHOLD, DEFAULT_BYTES if before <= DEFAULT_BYTES else 2 * before)
            libc.malloc_trim(0)

    return undo


def _plug(libc: Libc, smallest: int) -> None:
    """Fill the holes of the heap with blocks of this size and more, while they still come from there.

    What was freed into the heap would be handed out again after the undo, for dozens of steps: training would
    not be as it was. The pages of the holes go back to the system first, and nothing is written to the
    blocks but a header each, so they take address space only. What takes longer than 20 ms is left: training
    stands still meanwhile.
    """
    libc.malloc_trim(0)
    until_s = time.perf_counter() + PLUGGING_S
    heap = libc.heap_bytes()
    size = max(smallest, 1 << max(0, heap.bit_length() - 1))
    while time.perf_counter() < until_s:
        block = libc.malloc(size)
        if block and libc.heap_bytes() == heap and not _is_mapping(libc, block):
            libc.plugs.append(block)
            continue
        if block:  # no hole was as large
            libc.free(block)
            libc.malloc_trim(0)
            heap = libc.heap_bytes()
        if size == smallest:
            return
        size = max(smallest, size // 2)


def _unplug(libc: Libc) -> None:
    while libc.plugs:
        libc.free(libc.plugs.pop())


def mmap_threshold_now(libc: Libc, probes: list[int]) -> int | None:
    """The present threshold in bytes, to 4 KiB: the smallest block that is a mapping of its own.

    None where a block that is a mapping under every threshold of glibc's own is none.

    The probes are not written to and cost address space only; the caller frees them when the threshold is
    fixed, for freeing a mapping raises it.
    """
    low, high = DEFAULT_BYTES, MOST_BYTES
    if _would_be_mapping(libc, low, probes):
        return low
    if not _would_be_mapping(libc, high + 4096, probes):
        return None
    while high - low > 4096:
        middle = (low + high) // 2
        if _would_be_mapping(libc, middle, probes):
            high = middle
        else:
            low = middle
    return high


def _would_be_mapping(libc: Libc, size: int, probes: list[int]) -> bool:
    block = libc.malloc(size)
    if not block:
        return True
    probes.append(block)
    return _is_mapping(libc, block)


def _is_mapping(libc: Libc, block: int) -> bool:
    # The size word before the block carries the flag IS_MMAPPED (glibc, malloc.c: struct malloc_chunk).
    return bool(libc.size_word(block) & 2)


def glibc() -> Libc:
    """The C library of this process.

    Raises:
        Refused: another allocator serves the process.
    """
    if not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        raise Refused("the C library is not glibc")
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        found = maps.read()
    for name in OTHERS:
        if f"/lib{name}" in found:
            raise Refused(f"the job's allocator is {name}")
    return _process()


_FIELDS = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
    *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
)


class _Info(ctypes.Structure):
    """struct mallinfo; `arena`: bytes of all heaps."""

    _fields_ = [(name, ctypes.c_int) for name in _FIELDS]
    arena: int


class _Info2(ctypes.Structure):
    """struct mallinfo2."""

    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS]
    arena: int


class _Glibc:
    threshold_before: int | None = None

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        self.mallopt: Callable[[int, int], int] = library.mallopt
        self.malloc_trim: Callable[[int], int] = library.malloc_trim
        allocate, release = library.malloc, library.free
        allocate.argtypes, allocate.restype = (ctypes.c_size_t,), ctypes.c_void_p
        release.argtypes, release.restype = (ctypes.c_void_p,), None
        self.malloc: Callable[[int], int | None] = allocate
        self.free: Callable[[int], None] = release
        self.plugs: list[int] = []
        wide = hasattr(library, "mallinfo2")  # since glibc 2.33; before it the fields were of 32 bits
        self._info: Callable[[], _Info] = library.mallinfo2 if wide else library.mallinfo
        self._info.restype = _Info2 if wide else _Info

    def heap_bytes(self) -> int:
        return int(self._info().arena)

    def size_word(self, block: int) -> int:
        return ctypes.c_size_t.from_address(block - ctypes.sizeof(ctypes.c_size_t)).value


@functools.cache
def _process() -> Libc:
    return _Glibc()
