"""The Python inside a process, as the files it has mapped show it: symbols, version, build.

Nothing is stopped or run. Standard library only, since the injector's own process loads it.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from autobrrr.attach.ptrace import elf_symbols
from autobrrr.machine import job_files, kernel_text, process_maps, procfs

ADD, RUN = "Py_AddPendingCall", "PyRun_SimpleString"
API = {ADD, RUN}
_FREE_THREADED_SYMBOL = "_Py_MergeZeroLocalRefcount"
_VERSION_IN_NAME = re.compile(r"python3\.([0-9]{1,3})(t?)")
_PROGRAM = re.compile(r"python3(\.[0-9]+)?t?")
_VERSION_IN_FOLDER = re.compile(r"/python3\.([0-9]{1,3})/lib-dynload/")
MOST_CANDIDATES = 4  # a process maps one interpreter


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedPython:
    """The Python found in a process, as far as its files show it."""

    machine: int | None  # ELF machine of the program
    has_api: bool
    version: tuple[int, int] | None
    free_threaded: bool
    replaced: bool = False  # its file is no more (an upgrade), and what it was is not for us to read


def read(pid: int, proc: Path = Path("/proc")) -> MappedPython:
    """Look at the files that a process has mapped; what can't be read is not there."""
    nothing = MappedPython(machine=None, has_api=False, version=None, free_threaded=False)
    try:
        mapped = process_maps.read(pid, proc)
        candidates = files(pid, mapped, proc)
    except OSError:
        return nothing
    machine, replaced = _machine_of(pid, proc), False
    for mapping in candidates:
        try:
            with opened(pid, mapping, proc) as file:
                found = file.symbols((ADD, RUN, "Py_Version", _FREE_THREADED_SYMBOL)) if file else {}
                if file is None or not found.keys() >= API:
                    continue
                named = _VERSION_IN_NAME.search(mapping.path)
                version = _packed(file, found) or (
                    _named_version(mapped) if named is None else (3, int(named[1]))
                )
        except elf_symbols.NotElf:
            continue
        except OSError:
            is_python = mapping.name.startswith("libpython") or procfs.is_python(mapping.name)
            replaced = replaced or (is_python and mapping.unlinked is not None)
            continue
        return MappedPython(
            machine=machine,
            has_api=True,
            version=version,
            free_threaded=_FREE_THREADED_SYMBOL in found or bool(named and named[2]),
        )
    return MappedPython(machine=machine, has_api=False, version=None, free_threaded=False, replaced=replaced)


def _packed(file: elf_symbols.Elf, found: dict[str, elf_symbols.Symbol]) -> tuple[int, int] | None:
    """`Py_Version` (3.11 and later): 0xMMmmppss."""
    if "Py_Version" not in found:
        return None
    number = int.from_bytes(file.read(found["Py_Version"].value, 8), "little")
    return number >> 24 & 0xFF, number >> 16 & 0xFF


def _named_version(mapped: list[process_maps.Mapping]) -> tuple[int, int] | None:
    """From the paths of the standard library's own extension modules."""
    for mapping in mapped:
        found = _VERSION_IN_FOLDER.search(mapping.path)
        if found:
            return 3, int(found[1])
    return None


def _machine_of(pid: int, proc: Path) -> int | None:
    head = kernel_text.data(proc / str(pid) / "exe", 20) or b""
    if head[:4] != b"\x7fELF" or len(head) < 20:
        return None
    (machine,) = struct.unpack_from("<H" if head[5] == 1 else ">H", head, 18)
    return int(machine)


def symbols(
    pid: int, mapped: list[process_maps.Mapping], names: Sequence[str], proc: Path = Path("/proc")
) -> dict[str, tuple[int, int]]:
    """Addresses (biased) and sizes of symbols of the Python in a process; empty where none is."""
    for mapping in files(pid, mapped, proc):
        with (
            contextlib.suppress(job_files.Unreadable, elf_symbols.NotElf),
            opened(pid, mapping, proc) as file,
        ):
            found = file.symbols(names) if file is not None else {}
            if file is not None and RUN in found:
                bias = mapping.start - file.first_page
                return {name: (bias + at.value, at.size_bytes) for name, at in found.items()}
    return {}


def files(
    pid: int, mapped: list[process_maps.Mapping], proc: Path = Path("/proc")
) -> list[process_maps.Mapping]:
    """First mappings of the files that may hold the interpreter: libpython, then the program.

    Where a linker was told to start the program, that has a file of its own, known by its name.
    """
    program = os.readlink(proc / str(pid) / "exe").removesuffix(process_maps.DELETED)
    first = [mapping for mapping in mapped if mapping.offset == 0 and mapping.path.startswith("/")]
    libraries = [mapping for mapping in first if mapping.name.startswith("libpython")]
    programs = [mapping for mapping in first if mapping.path == program]
    named = [mapping for mapping in first if _PROGRAM.fullmatch(mapping.name) and mapping not in programs]
    return libraries[:MOST_CANDIDATES] + programs[:1] + named[:1]


@contextlib.contextmanager
def opened(
    pid: int, mapping: process_maps.Mapping, proc: Path = Path("/proc")
) -> Iterator[elf_symbols.Elf | None]:
    """The mapped file as ELF; None where it is none.

    Raises:
        OSError: it can't be opened, or is no regular file.
    """
    with process_maps.opened(pid, mapping, proc) as fd:
        try:
            file = elf_symbols.Elf(elf_symbols.of_file(fd))
        except elf_symbols.NotElf:
            file = None
        yield file
