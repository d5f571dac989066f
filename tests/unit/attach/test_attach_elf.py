"""Symbols are found as the linker finds them, and broken files are refused, not crashed on."""

from __future__ import annotations

import ctypes
import os
import struct
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.attach.ptrace import mapped_python
from autobrrr.machine import process_maps

BASE = 0x7F0000000000


def of_bytes(data: bytes) -> mapped_python.LoadedElf:
    """A file that begins at `BASE`."""
    return mapped_python.LoadedElf(
        lambda at, count: data[max(at - BASE, 0) : max(at - BASE, 0) + count], BASE
    )


def test_addresses_are_those_that_the_linker_gives() -> None:
    names = (mapped_python.ADD, mapped_python.RUN, "PyErr_SetString", "Py_MakePendingCalls")
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        mapped = process_maps.read(os.getpid())
        _, found = mapped_python.find(os.getpid(), mapped, memory.fileno(), names)
    for name in names:
        function = getattr(ctypes.pythonapi, name)
        assert found[name][0] == ctypes.cast(function, ctypes.c_void_p).value
        assert found[name][1] > 0


def test_this_interpreter_is_recognised() -> None:
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        found = mapped_python.read(os.getpid(), memory.fileno())
    free_threaded = getattr(sys, "_is_gil_enabled", lambda: True)() is False
    assert found == mapped_python.MappedPython(version=sys.version_info[:2], free_threaded=free_threaded)


def test_a_program_of_another_name_is_known_by_the_librarys_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a copy in an environment is; Python 3.10 has no symbol that tells."""
    path = "/env/lib/python3.10/lib-dynload/_json.so"
    module = process_maps.Mapping(start=BASE, end=BASE + 4096, offset=0, path=path)
    monkeypatch.setattr(process_maps, "read", lambda *_: [module])
    monkeypatch.setattr(mapped_python, "find", lambda *_: ("/env/bin/python", {mapped_python.RUN: (BASE, 8)}))
    found = mapped_python.read(1, -1)
    assert found == mapped_python.MappedPython(version=(3, 10), free_threaded=False)


def small(tag: int, table: bytes, name: bytes = b"wanted", section: int = 1, linked: int = 0) -> bytes:
    """A tiny ELF file with one symbol and one hash table; of section 0 it is not defined.

    Args:
        linked: What a linker has added to the addresses in it.
    """
    strings = b"\0" + name + b"\0"
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 0x12, 0, section, 0x1234, 7)
    parts = {5: strings, 6: symbols, tag: table}
    at, body, dynamic = 0x1000, b"", b""
    for key, data in parts.items():
        dynamic += struct.pack("<qQ", key, linked + at + len(body))
        body += data.ljust(64, b"\0")
    dynamic += bytes(16)
    header = struct.pack("<4sBB10xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    size = len(body) + len(dynamic)
    load = struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, 0x1000 + size, 0x1000 + size, 4096)
    dyn = struct.pack(
        "<IIQQQQQQ", 2, 4, 0x1000 + len(body), 0x1000 + len(body), 0, len(dynamic), len(dynamic), 8
    )
    return (header + load + dyn).ljust(0x1000, b"\0") + body + dynamic


def gnu_table(name: bytes) -> bytes:
    return struct.pack("<IIIIQII", 1, 1, 1, 0, 2**64 - 1, 1, mapped_python.gnu_hash(name) | 1)


@pytest.mark.parametrize("linked", [0, BASE])
def test_a_symbol_is_found_by_the_hash_of_its_name(linked: int) -> None:
    """glibc makes addresses of what stands in the dynamic section, musl does not."""
    file = of_bytes(small(0x6FFFFEF5, gnu_table(b"wanted"), linked=linked))
    assert file.symbols(["wanted", "other"]) == {"wanted": (BASE + 0x1234, 7)}


def test_a_symbol_of_no_section_is_not_defined() -> None:
    assert of_bytes(small(0x6FFFFEF5, gnu_table(b"wanted"), section=0)).symbols(["wanted"]) == {}


def test_the_first_page_is_a_whole_one() -> None:
    data = bytearray(small(0x6FFFFEF5, gnu_table(b"wanted")))
    struct.pack_into("<Q", data, 64 + 16, 0x10)  # the address of the only segment to load
    assert of_bytes(bytes(data)).symbols(["wanted"]) == {"wanted": (BASE + 0x1234, 7)}


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x01\x01" + bytes(100)])
def test_what_is_no_elf_file(data: bytes) -> None:
    with pytest.raises(mapped_python.NotElf):
        of_bytes(data)


@given(st.integers(0, 0x10FF), st.binary(min_size=1, max_size=16))
def test_a_damaged_file_gives_an_answer_or_is_refused(at: int, junk: bytes) -> None:
    whole = small(0x6FFFFEF5, gnu_table(b"wanted"))
    damaged = whole[:at] + junk + whole[at + len(junk) :]
    try:
        assert of_bytes(damaged).symbols(["wanted"]).keys() <= {"wanted"}
    except mapped_python.NotElf:
        pass


def test_lines_of_a_maps_file() -> None:
    text = (
        "00400000-00401000 r-xp 00000000 08:01 123 /opt/my python/bin/python3 (deleted)\n"
        "7ffd0000-7ffd2000 r-xp 00000000 00:00 0 [vdso]\n"
        "7f000000-7f001000 rw-p 00001000 00:00 0\n"
        "\n"
    )
    first, vdso, plain = process_maps.parse(text)
    assert (first.path, first.name, first.start) == ("/opt/my python/bin/python3", "python3", 0x400000)
    assert (vdso.path, vdso.end - vdso.start) == ("[vdso]", 0x2000)
    assert (plain.path, plain.offset) == ("", 0x1000)
