"""The Python inside a process, as its memory shows it: symbols, version, build.

Symbols are found as the dynamic linker finds them, by PT_DYNAMIC and the GNU hash table, never by section
headers: so stripped files will do, and files that were deleted, replaced, or lie in another mount namespace.
The memory is the job's: tables are walked up to a bound. Nothing is stopped or run. Standard library only,
since the injector's own process loads it.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autobrrr.machine import process_maps
from autobrrr.machine.process_maps import Mapping

ADD, RUN = "Py_AddPendingCall", "PyRun_SimpleString"
_API = {ADD, RUN}
_FREE_THREADED_SYMBOL = "_Py_MergeZeroLocalRefcount"
_VERSION_IN_NAME = re.compile(r"python3\.([0-9]{1,3})(t?)")
_VERSION_IN_FOLDER = re.compile(r"/python3\.([0-9]{1,3})(t?)/lib-dynload/")
_PROGRAM = re.compile(r"python3(\.[0-9]+)?t?")
MOST_CANDIDATES = 4  # a process maps one interpreter

PAGE = 4096
MOST_SEGMENTS, MOST_ENTRIES, MOST_CHAIN = 128, 1024, 1024

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_STRTAB, _DT_SYMTAB, _DT_GNU_HASH = 5, 6, 0x6FFFFEF5
_HEADER = struct.Struct("<4sBB10xHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_WORD = struct.Struct("<I")
_GNU_HEAD = struct.Struct("<IIII")

ReadAt = Callable[[int, int], bytes]  # address and count; fewer bytes, or OSError, where nothing is mapped


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedPython:
    """A CPython with a C API, found in a process."""

    version: tuple[int, int] | None
    free_threaded: bool


def read(pid: int, memory: int, proc: Path = Path("/proc")) -> MappedPython | None:
    """Find Python in the memory map of a process; None if nothing there has its C API.

    Args:
        memory: A descriptor of its memory.
    """
    try:
        mapped = process_maps.read(pid, proc)
        path, symbols = find(pid, mapped, memory, ("Py_Version", _FREE_THREADED_SYMBOL), proc)
    except OSError:
        return None
    if not symbols:
        return None
    # A copy of 3.10 in an environment may be called `python`: the library's own modules tell.
    folders = (_VERSION_IN_FOLDER.search(mapping.path) for mapping in mapped)
    named = _VERSION_IN_NAME.search(path) or next(filter(None, folders), None)
    version = None if named is None else (3, int(named[1]))
    if "Py_Version" in symbols:  # 3.11 and later: 0xMMmmppss
        number = int.from_bytes(os.pread(memory, 8, symbols["Py_Version"][0]), "little")
        version = number >> 24 & 0xFF, number >> 16 & 0xFF
    return MappedPython(
        version=version, free_threaded=_FREE_THREADED_SYMBOL in symbols or bool(named and named[2])
    )


def find(
    pid: int, mapped: Sequence[Mapping], memory: int, names: Sequence[str], proc: Path = Path("/proc")
) -> tuple[str, dict[str, tuple[int, int]]]:
    """The file that holds the Python; addresses and sizes of the API and of `names`. Empty where none does.

    Raises:
        OSError: the process is gone.
    """
    for path, found in symbols_of(_files(pid, mapped, proc), memory, (*_API, *names)):
        if found.keys() >= _API:
            return path, found
    return "", {}


def symbols_of(
    files: Sequence[Mapping], memory: int, names: Sequence[str]
) -> Iterator[tuple[str, dict[str, tuple[int, int]]]]:
    """Paths and symbols of files, by their first mappings; what is no ELF file is passed over."""
    for file in files:
        try:
            yield (
                file.path,
                LoadedElf(lambda at, count: os.pread(memory, count, at), file.start).symbols(names),
            )
        except NotElf:
            continue


def _files(pid: int, mapped: Sequence[Mapping], proc: Path) -> list[Mapping]:
    """First mappings of the files that may hold the interpreter: libpython, then the program.

    Where a linker was told to start the program, that has a file of its own, known by its name.
    """
    program = os.readlink(proc / str(pid) / "exe").removesuffix(process_maps.DELETED)
    first = [mapping for mapping in mapped if mapping.offset == 0 and mapping.path.startswith("/")]
    libraries = [mapping for mapping in first if mapping.name.startswith("libpython")]
    programs = [mapping for mapping in first if mapping.path == program]
    named = [mapping for mapping in first if _PROGRAM.fullmatch(mapping.name) and mapping not in programs]
    return libraries[:MOST_CANDIDATES] + programs[:1] + named[:1]


class NotElf(ValueError):
    """No 64-bit little-endian ELF file with a dynamic symbol table, or not all of it is mapped."""


class LoadedElf:
    """One loaded file, open for lookups.

    Args:
        read_at: Reads the memory of the process.
        start: Where the file begins in it.

    Raises:
        NotElf: not such a file.
    """

    def __init__(self, read_at: ReadAt, start: int) -> None:
        self._read_at, self._start = read_at, start
        magic, bits, order, _, _, *rest = self._unpack(_HEADER, start)
        if magic != b"\x7fELF" or bits != 2 or order != 1:
            raise NotElf("not a 64-bit little-endian ELF file")
        table, count = start + rest[2], min(rest[7], MOST_SEGMENTS)
        segments = [self._unpack(_SEGMENT, table + index * _SEGMENT.size) for index in range(count)]
        loads = [address for kind, _, _, address, *_ in segments if kind == _PT_LOAD]
        dynamic = [(address, size) for kind, _, _, address, _, size, *_ in segments if kind == _PT_DYNAMIC]
        if not loads or not dynamic:
            raise NotElf("nothing to load in it, or a static program without a symbol table")
        self._bias = start - (min(loads) & ~(PAGE - 1))
        self._dynamic = self._read_dynamic(*dynamic[0])

    def symbols(self, names: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Addresses in the process, and sizes in bytes, of the defined ones among `names`. Raises NotElf."""
        found = {name: self._find(name.encode()) for name in names}
        return {name: symbol for name, symbol in found.items() if symbol is not None}

    def _unpack(self, form: struct.Struct, address: int) -> tuple[Any, ...]:
        try:
            return form.unpack(self._read_at(address, form.size))
        except (struct.error, OverflowError, OSError) as error:
            raise NotElf(f"it is not all there: {error}") from None

    def _read_dynamic(self, address: int, size: int) -> dict[int, int]:
        entries: dict[int, int] = {}
        for index in range(min(size // _DYNAMIC.size, MOST_ENTRIES)):
            tag, value = self._unpack(_DYNAMIC, self._bias + address + index * _DYNAMIC.size)
            if tag == 0:
                break
            # glibc has made addresses of these when it loaded the file; musl leaves them as they were.
            entries[tag] = value if value >= self._start else self._bias + value
        return entries

    def _find(self, name: bytes) -> tuple[int, int] | None:
        if not self._dynamic.keys() >= {_DT_SYMTAB, _DT_STRTAB, _DT_GNU_HASH}:
            return None
        table = self._dynamic[_DT_GNU_HASH]
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

    def _symbol(self, index: int, name: bytes) -> tuple[int, int] | None:
        at = self._dynamic[_DT_SYMTAB] + index * _SYMBOL.size
        text, _, _, section, value, size = self._unpack(_SYMBOL, at)
        form = struct.Struct(f"{len(name) + 1}s")
        if section == 0 or self._unpack(form, self._dynamic[_DT_STRTAB] + text)[0] != name + b"\0":
            return None
        return self._bias + value, size


def gnu_hash(name: bytes) -> int:
    """The hash of DT_GNU_HASH: h = h * 33 + byte, from 5381, modulo 2^32."""
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value
