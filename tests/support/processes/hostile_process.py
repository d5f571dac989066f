"""A process that shows what it can to whoever lists processes.

`python hostile_process.py KIND FOLDER UID ...`, started by root: it becomes that user, maps files that are
called like torch's and Python's libraries, says "up" and sleeps.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import signal
import struct
import sys
import time

HUGE = 1 << 38


def mapped(path: str, data: bytes, size: int | None = None) -> mmap.mmap:
    """A file of one's own, mapped."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
        if size is not None:
            file.truncate(size)
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)


def endless_elf() -> bytes:
    """The beginning of a sparse library whose hash table has one chain without an end."""
    data = bytearray(4096 * 4)
    struct.pack_into(
        "<4sBB10xHHIQQQIHHHHHH", data, 0, b"\x7fELF", 2, 1, 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0
    )
    struct.pack_into("<IIQQQQQQ", data, 64, 1, 5, 0, 0, 0, HUGE, HUGE, 4096)
    struct.pack_into("<IIQQQQQQ", data, 120, 2, 6, 0x400, 0x400, 0x400, 0x100, 0x100, 8)
    for place, entry in enumerate([(6, 0x2000), (5, 0x2800), (0x6FFFFEF5, 0x1000), (0, 0)]):
        struct.pack_into("<qQ", data, 0x400 + 16 * place, *entry)
    struct.pack_into("<IIII", data, 0x1000, 1, 1, 1, 0)
    struct.pack_into("<I", data, 0x1018, 1)
    return bytes(data)


def main() -> None:
    kind, folder, user = sys.argv[1], sys.argv[2], int(sys.argv[3])
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)  # here: the interpreter's own files may be closed to that user
    system = ctypes.CDLL(None)
    system.prctl(4, 1, 0, 0, 0)  # dumpable: what it shows can be read
    version = f"{folder}/torch/version.py"
    keep = [mapped(f"{folder}/torch/lib/libtorch_python.so", b"x" * 4096)]
    if kind == "fifo":
        os.mkfifo(version)
    elif kind == "link":
        os.symlink(sys.argv[4], version)
    else:
        with open(version, "w") as file:
            file.write(
                "__version__ = '2.3.0'\n" if kind != "steering" else "__version__ = '2.3\x1b[31mRED\x07'\n"
            )
            if kind == "large":
                file.truncate(HUGE)
    if kind == "endless":
        keep.append(mapped(f"{folder}/lib/libpython3.11.so.1.0", endless_elf(), HUGE))
    if kind == "lease":
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        held = os.open(version, os.O_RDWR)
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    if kind == "lines":
        forged = "7f0000000000-7f0000001000 r--p 00000000 08:01 9 "
        keep.append(mapped(f"{folder}/x\x0cq w e\x1c{forged}", b"x" * 4096))
        system.prctl(15, b"a\x1cUid:\t0\t0\t0", 0, 0, 0)
    print("up", flush=True)
    time.sleep(90)


main()
