"""glibc's two thresholds: read, set, and put back so that glibc goes on learning them.

In: the C library. Out: what they are; no call tells it. `mallopt` ends for good that glibc raises them by
itself, so that a job whose thresholds were only put back through it is not the job that it was. Both words
and the flag that ends the raising are found by what `mallopt` itself changes in the library's data: no
address and no layout is assumed, and where anything but the expected has changed the job is refused.
"""

from __future__ import annotations

import weakref
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..registry import Refused
from .glibc import M_ARENA_TEST, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, Libc

MARK_BYTES = (31 << 20) + 0x2B8  # a value that nobody else sets, and that every glibc takes
ARENA_TEST = 8  # glibc's own on 64 bits
NEAR_BYTES = 256  # all three stand in one record (malloc.c: struct malloc_par)
HELD_BYTES = 64 << 20
UNREADABLE = "what this glibc's thresholds are can't be read, so they could not be put back"


SET_BY_JOB = "the job has set glibc's thresholds itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Bytes from which a block is a mapping, free bytes above which the heap's top is given back."""

    mmap_bytes: int
    trim_bytes: int
    fixed: bool  # set by hand: glibc does not raise them by itself any more


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Addresses in the library's data."""

    mmap: int
    trim: int
    fixed: int

    def read(self, libc: Libc) -> Thresholds:
        return Thresholds(
            mmap_bytes=libc.word(self.mmap),
            trim_bytes=libc.word(self.trim),
            fixed=bool(libc.flag(self.fixed)),
        )

    def put(self, libc: Libc, thresholds: Thresholds) -> None:
        """Set both, and let glibc raise them again where it did."""
        libc.mallopt(M_MMAP_THRESHOLD, thresholds.mmap_bytes)
        libc.mallopt(M_TRIM_THRESHOLD, thresholds.trim_bytes)
        if not thresholds.fixed:
            libc.set_flag(self.fixed, 0)


_FOUND: MutableMapping[Libc, Places] = weakref.WeakKeyDictionary()


def find(libc: Libc) -> Places:
    """Where the thresholds stand; looked for once. They are as before when this returns or raises.

    Raises:
        Refused: they can't be found, or the job has set them itself.
    """
    if libc in _FOUND:
        return _FOUND[libc]
    # With a mapping held no count of mappings rises from 0 to 1 meanwhile, as the flag does.
    held = libc.malloc(HELD_BYTES)
    try:
        places = _FOUND[libc] = _find(libc)
    finally:
        if held:
            libc.free(held)
    return places


def _find(libc: Libc) -> Places:
    # A setting of no consequence first: what can't be found is not set.
    rehearsed = _mark(libc, M_ARENA_TEST, None)
    libc.mallopt(M_ARENA_TEST, ARENA_TEST if rehearsed is None else rehearsed.was)
    if rehearsed is None:
        raise Refused(UNREADABLE)
    mapped = _mark(libc, M_MMAP_THRESHOLD, rehearsed.address)
    if mapped is None:
        raise Refused(UNREADABLE)
    trimmed = _mark(libc, M_TRIM_THRESHOLD, rehearsed.address)
    libc.mallopt(M_MMAP_THRESHOLD, mapped.was)
    if trimmed is None:
        raise Refused(UNREADABLE)
    libc.mallopt(M_TRIM_THRESHOLD, trimmed.was)
    if not mapped.raised:
        raise Refused(SET_BY_JOB)
    if len(mapped.raised) > 1:
        raise Refused(UNREADABLE)
    places = Places(mmap=mapped.address, trim=trimmed.address, fixed=mapped.raised[0])
    libc.set_flag(places.fixed, 0)
    return places


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marked:
    address: int  # of the word that took the mark
    was: int
    raised: tuple[int, ...]  # addresses near it of ints that went from 0 to 1


def _mark(libc: Libc, parameter: int, near: int | None) -> _Marked | None:
    """Set a parameter to the mark, and find the one word that took it; None where it is not one."""
    before = libc.own_data()
    if not libc.mallopt(parameter, MARK_BYTES):
        return None
    after = libc.own_data()
    took = [
        (address, was)
        for address, was, now in _changed(before, after, "L")
        if now == MARK_BYTES and (near is None or abs(address - near) < NEAR_BYTES)
    ]
    if len(took) != 1:
        return None
    ((place, was),) = took
    raised = tuple(
        address
        for address, flag_was, now in _changed(before, after, "i")
        if (flag_was, now) == (0, 1) and abs(address - place) < NEAR_BYTES
    )
    return _Marked(address=place, was=was, raised=raised)


def _changed(
    before: Sequence[tuple[int, bytes]], after: Sequence[tuple[int, bytes]], kind: Literal["L", "i"]
) -> list[tuple[int, int, int]]:
    """Address, former and present value of every size_t ("L") or int ("i") that has changed."""
    found: list[tuple[int, int, int]] = []
    for (start, was), (same, now) in zip(before, after, strict=False):
        if start != same or was == now:
            continue
        old, new = memoryview(was).cast("B").cast(kind), memoryview(now).cast("B").cast(kind)
        pairs = enumerate(zip(old, new, strict=False))
        found += [(start + place * old.itemsize, a, b) for place, (a, b) in pairs if a != b]
    return found
