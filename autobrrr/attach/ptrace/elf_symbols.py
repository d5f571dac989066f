"""Symbols of a mapped ELF file, found as the dynamic linker finds them.

Reads PT_DYNAMIC and the GNU hash table, never section headers: works on stripped files. In goes a function
that reads the file, out come addresses relative to the load bias. A file is whoever's: tables are walked up
to a bound, and a file that shrinks meanwhile is cut short, no fault of memory.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

PAGE = 4096
MOST_SEGMENTS, MOST_ENTRIES, MOST_CHAIN = 128, 1024, 1024
EM_X86_64 = 62
EM_AARCH64 = 183

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_STRTAB, _DT_SYMTAB, _DT_GNU_HASH = 5, 6, 0x6FFFFEF5
_HEADER = struct.Struct("<4sBB10xHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_WORD = struct.Struct("<I")
_GNU_HEAD = struct.Struct("<IIII")

ReadAt = Callable[[int, int], bytes]  # offset and count; fewer bytes where the file ends


class NotElf(ValueError):
    """No 64-bit little-endian ELF file with a dynamic symbol table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbol:
    """A defined symbol: address before the load bias, and size in bytes."""

    value: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Segment:
    kind: int
    offset: int
    address: int
    file_bytes: int


def of_file(fd: int) -> ReadAt:
    """An open file, which must stay open."""
    return lambda offset, count: os.pread(fd, count, offset)


class Elf:
    """One file, open for lookups.

    Args:
        read_at: Reads the file.

    Raises:
        NotElf: not such a file, or cut short.
    """

    def __init__(self, read_at: ReadAt) -> None:
        self._read_at = read_at
        try:
            self._open()
        except (struct.error, OverflowError) as error:
            raise NotElf(f"cut short: {error}") from None

    def _unpack(self, form: struct.Struct, offset: int) -> tuple[Any, ...]:
        return form.unpack(self._read_at(offset, form.size))

    def _open(self) -> None:
        magic, bits, order, _, machine, *rest = self._unpack(_HEADER, 0)
        if magic != b"\x7fELF" or bits != 2 or order != 1:
            raise NotElf("not a 64-bit little-endian ELF file")
        self.machine = int(machine)
        table, count = rest[2], rest[7]
        if count > MOST_SEGMENTS:
            raise NotElf(f"{count} segments")
        self._segments = []
        for index in range(count):
            kind, _, offset, address, _, file_bytes, _, _ = self._unpack(
                _SEGMENT, table + index * _SEGMENT.size
            )
            self._segments.append(_Segment(kind=kind, offset=offset, address=address, file_bytes=file_bytes))
        loads = [segment.address for segment in self._segments if segment.kind == _PT_LOAD]
        if not loads:
            raise NotElf("nothing to load in it")
        self.first_page = min(loads) & ~(PAGE - 1)
        self._dynamic = self._read_dynamic()

    def _read_dynamic(self) -> dict[int, int]:
        for segment in self._segments:
            if segment.kind == _PT_DYNAMIC:
                entries: dict[int, int] = {}
                count = min(segment.file_bytes // _DYNAMIC.size, MOST_ENTRIES)
                for index in range(count):
                    tag, value = self._unpack(_DYNAMIC, segment.offset + index * _DYNAMIC.size)
                    if tag == 0:
                        break
                    entries[tag & 0xFFFFFFFF if tag > 0 else tag] = value
                return entries
        raise NotElf("a static program without a symbol table")

    def offset(self, address: int) -> int:
        """Where an address (before the bias) lies in the file."""
        for segment in self._segments:
            if segment.kind == _PT_LOAD and segment.address <= address < segment.address + segment.file_bytes:
                return segment.offset + address - segment.address
        raise NotElf(f"address {address:#x} is in no segment")

    def read(self, address: int, count: int) -> bytes:
        """Bytes of the file at an address; fewer where it is cut short."""
        return self._read_at(self.offset(address), count)

    def symbols(self, names: Iterable[str]) -> dict[str, Symbol]:
        """The defined ones among `names`."""
        try:
            found = {name: self._find(name.encode()) for name in names}
        except (struct.error, OverflowError) as error:
            raise NotElf(f"cut short: {error}") from None
        return {name: symbol for name, symbol in found.items() if symbol is not None}

    def _find(self, name: bytes) -> Symbol | None:
        if not self._dynamic.keys() >= {_DT_SYMTAB, _DT_STRTAB, _DT_GNU_HASH}:
            return None
        table = self.offset(self._dynamic[_DT_GNU_HASH])
        buckets, first, bloom, _ = self._unpack(_GNU_HEAD, table)
        if buckets == 0:
            return None
        bucket_at = table + 16 + 8 * bloom
        chain_at = bucket_at + 4 * buckets
        wanted = gnu_hash(name)
        (index,) = self._unpack(_WORD, bucket_at + 4 * (wanted % buckets))
        if index < first:
            return None
        for place in range(index, index + MOST_CHAIN):
            (seen,) = self._unpack(_WORD, chain_at + 4 * (place - first))
            if seen | 1 == wanted | 1 and (symbol := self._symbol(place, name)) is not None:
                return symbol
            if seen & 1:
                return None
        raise NotElf("a chain of its hash table does not end")

    def _symbol(self, index: int, name: bytes) -> Symbol | None:
        at = self.offset(self._dynamic[_DT_SYMTAB]) + index * _SYMBOL.size
        text, _, _, section, value, size = self._unpack(_SYMBOL, at)
        start = self.offset(self._dynamic[_DT_STRTAB]) + text
        if section == 0 or self._read_at(start, len(name) + 1) != name + b"\0":
            return None
        return Symbol(value=value, size_bytes=size)


def gnu_hash(name: bytes) -> int:
    """The hash of DT_GNU_HASH: h = h * 33 + byte, from 5381, modulo 2^32."""
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value
