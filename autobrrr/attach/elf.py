"""Symbols of a mapped ELF file, found as the dynamic linker finds them.

Reads PT_DYNAMIC and the hash tables, never section headers: works on stripped files. In goes a
buffer (an mmap of the file), out come addresses relative to the load bias.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

PAGE = 4096
EM_X86_64 = 62
EM_AARCH64 = 183

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_GNU_HASH = 4, 5, 6, 0x6FFFFEF5
_HEADER = struct.Struct("<4sBB10xHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_SYMBOL = struct.Struct("<IBBHQQ")

Buffer = bytes | memoryview


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


class Elf:
    """One file, open for lookups.

    Args:
        data: The whole file.

    Raises:
        NotElf: not such a file, or cut short.
    """

    def __init__(self, data: Buffer) -> None:
        self._data = data
        try:
            self._open()
        except (struct.error, OverflowError) as error:
            raise NotElf(f"cut short: {error}") from None

    def _open(self) -> None:
        magic, bits, order, _, machine, *rest = _HEADER.unpack_from(self._data)
        if magic != b"\x7fELF" or bits != 2 or order != 1:
            raise NotElf("not a 64-bit little-endian ELF file")
        self.machine = int(machine)
        table, count = rest[2], rest[7]
        self._segments = []
        for index in range(count):
            kind, _, offset, address, _, file_bytes, _, _ = _SEGMENT.unpack_from(
                self._data, table + index * _SEGMENT.size
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
                for position in range(segment.offset, segment.offset + segment.file_bytes, _DYNAMIC.size):
                    tag, value = _DYNAMIC.unpack_from(self._data, position)
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
        """Bytes of the file at an address."""
        start = self.offset(address)
        return bytes(self._data[start : start + count])

    def symbols(self, names: Iterable[str]) -> dict[str, Symbol]:
        """The defined ones among `names`."""
        try:
            found = {name: self._find(name.encode()) for name in names}
        except (struct.error, OverflowError) as error:
            raise NotElf(f"cut short: {error}") from None
        return {name: symbol for name, symbol in found.items() if symbol is not None}

    def _find(self, name: bytes) -> Symbol | None:
        if _DT_SYMTAB not in self._dynamic or _DT_STRTAB not in self._dynamic:
            return None
        if _DT_GNU_HASH in self._dynamic:
            return self._find_gnu(name)
        return self._find_sysv(name) if _DT_HASH in self._dynamic else None

    def _find_gnu(self, name: bytes) -> Symbol | None:
        table = self.offset(self._dynamic[_DT_GNU_HASH])
        buckets, first, bloom, _ = struct.unpack_from("<IIII", self._data, table)
        if buckets == 0:
            return None
        bucket_at = table + 16 + 8 * bloom
        chain_at = bucket_at + 4 * buckets
        wanted = gnu_hash(name)
        (index,) = struct.unpack_from("<I", self._data, bucket_at + 4 * (wanted % buckets))
        while index >= first:
            (seen,) = struct.unpack_from("<I", self._data, chain_at + 4 * (index - first))
            if seen | 1 == wanted | 1 and (symbol := self._symbol(index, name)) is not None:
                return symbol
            if seen & 1:
                return None
            index += 1
        return None

    def _find_sysv(self, name: bytes) -> Symbol | None:
        table = self.offset(self._dynamic[_DT_HASH])
        _, chains = struct.unpack_from("<II", self._data, table)
        for index in range(chains):
            if (symbol := self._symbol(index, name)) is not None:
                return symbol
        return None

    def _symbol(self, index: int, name: bytes) -> Symbol | None:
        at = self.offset(self._dynamic[_DT_SYMTAB]) + index * _SYMBOL.size
        text, _, _, section, value, size = _SYMBOL.unpack_from(self._data, at)
        start = self.offset(self._dynamic[_DT_STRTAB]) + text
        if section == 0 or bytes(self._data[start : start + len(name) + 1]) != name + b"\0":
            return None
        return Symbol(value=value, size_bytes=size)


def gnu_hash(name: bytes) -> int:
    """The hash of DT_GNU_HASH: h = h * 33 + byte, from 5381, modulo 2^32."""
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value
