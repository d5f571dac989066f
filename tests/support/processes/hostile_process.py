"""A process that shows what it can to whoever lists processes.

`python hostile_process.py KIND FOLDER UID ...`, started by root: it becomes that user, maps files that are
called like torch's and Python's libraries, says "up" and sleeps.
"""

import ctypes
import mmap
import os
import sys
import time


def mapped(path: str) -> mmap.mmap:
    """A file of one's own, mapped."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(b"x" * 4096)
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)


def main() -> None:
    kind, folder, user = sys.argv[1], sys.argv[2], int(sys.argv[3])
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)  # here: the interpreter's own files may be closed to that user
    system = ctypes.CDLL(None)
    system.prctl(4, 1, 0, 0, 0)  # dumpable: what it shows can be read
    version = f"{folder}/torch/version.py"
    keep = mapped(f"{folder}/torch/lib/libtorch_python.so")
    if kind == "fifo":
        os.mkfifo(version)
    elif kind == "link":
        os.symlink(sys.argv[4], version)
    else:
        with open(version, "w") as file:
            file.write(
                "__version__ = '2.3.0'\n" if kind != "steering" else "__version__ = '2.3\x1b[31mRED\x07'\n"
            )
    print("up", flush=True)
    time.sleep(90)
    keep.close()


main()
