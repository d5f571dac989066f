"""The Python inside a process, as its memory shows it: symbols, version, build.

Nothing is stopped or run. Standard library only, since the injector's own process loads it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from autobrrr.attach.ptrace.elf_symbols import LoadedElf, NotElf
from autobrrr.machine import process_maps
from autobrrr.machine.process_maps import Mapping

ADD, RUN = "Py_AddPendingCall", "PyRun_SimpleString"
_API = {ADD, RUN}
_FREE_THREADED_SYMBOL = "_Py_MergeZeroLocalRefcount"
_VERSION_IN_NAME = re.compile(r"python3\.([0-9]{1,3})(t?)")
_PROGRAM = re.compile(r"python3(\.[0-9]+)?t?")
MOST_CANDIDATES = 4  # a process maps one interpreter


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedPython:
    """A CPython with a C API, found in a process."""

    version: tuple[int, int] | None
    free_threaded: bool


def read(pid: int, memory: int, proc: Path = Path("/proc")) -> MappedPython | None:
    """Look at what a process has mapped; None where that holds no Python with a C API.

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
    named = _VERSION_IN_NAME.search(path)
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
