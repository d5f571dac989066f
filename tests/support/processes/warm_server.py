"""A process that has imported torch and forks: each child runs one program as a fresh interpreter would.

Run by `warm_python`, never imported. A child is its caller's child, not this process's, and shows the
command line and the environment that it was asked to have: `/proc` tells it from no other Python.
"""

import array
import atexit
import ctypes
import gc
import importlib
import json
import mmap
import os
import signal
import socket
import struct
import sys
import tempfile
import types

import numpy
import torch

MOST_BYTES = 200_000  # of one request
SYS_CLONE = {"x86_64": 56, "aarch64": 220}.get(os.uname().machine)
CLONE_PARENT, CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID = 0x8000, 0x200000, 0x1000000
PR_SET_MM, PR_SET_MM_MAP, PR_GET_TID_ADDRESS = 35, 14, 40
# Fields of `/proc/self/stat`, counted from 1 as proc(5) does.
CODE_AND_DATA, START_BRK, START_STACK = (26, 27, 45, 46), 47, 28

libc = ctypes.CDLL(None, use_errno=True)
libc.sbrk.restype = ctypes.c_void_p


def fork_for_the_parent() -> int:
    """As `os.fork`, but the child is a child of this process's parent."""
    thread_id_at = ctypes.c_void_p()
    flags = CLONE_PARENT | CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID | signal.SIGCHLD
    # Where glibc keeps the thread's id: the kernel writes the child's there, as for glibc's own fork.
    assert libc.prctl(PR_GET_TID_ADDRESS, ctypes.byref(thread_id_at), 0, 0, 0) == 0
    nothing = ctypes.c_void_p(0)
    ctypes.pythonapi.PyOS_BeforeFork()
    # The last two arguments stand the other way round on ARM.
    last = (thread_id_at, nothing) if os.uname().machine == "x86_64" else (nothing, thread_id_at)
    pid: int = libc.syscall(SYS_CLONE, ctypes.c_ulong(flags), nothing, nothing, *last)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return pid


def show(words: list[str], environment: dict[str, str]) -> mmap.mmap:
    """Let the kernel show this command line and this environment; they live as long as what is returned."""
    command = b"".join(os.fsencode(word) + b"\0" for word in words)
    settings = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items())
    shown = mmap.mmap(-1, len(command) + len(settings) + 1, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    shown.write(command + settings)
    command_at = ctypes.addressof(ctypes.c_char.from_buffer(shown))
    settings_at = command_at + len(command)
    with open("/proc/self/stat") as stat:
        fields = [0, 0, *stat.read().rsplit(")", 1)[1].split()]
    given = struct.pack(
        "<12QIi",
        *(int(fields[at - 1]) for at in CODE_AND_DATA),
        *(int(fields[START_BRK - 1]), libc.sbrk(0), int(fields[START_STACK - 1])),
        *(command_at, settings_at, settings_at, settings_at + len(settings)),
        *(0, 0, -1),  # the auxiliary vector and the executable stay
    )
    if libc.prctl(PR_SET_MM, PR_SET_MM_MAP, given, len(given), 0):
        raise OSError(ctypes.get_errno(), "PR_SET_MM_MAP")
    return shown


def asked(link: socket.socket) -> dict | None:
    """Fork for each request; returns the request in the child, None at the end of the link."""
    while True:
        streams = array.array("i")
        text, control, _, _ = link.recvmsg(MOST_BYTES, socket.CMSG_SPACE(3 * streams.itemsize))
        if not text:
            return None
        for _, _, data in control:
            streams.frombytes(data)
        pid = fork_for_the_parent()
        if pid == 0:
            link.close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            return json.loads(text)
        for stream in streams:
            os.close(stream)
        link.send(str(pid).encode())


def become(request: dict, rest_of_path: list[str]) -> tuple[types.CodeType, types.ModuleType]:
    """Make this process look as one that was started anew; returns what to run, and its `__main__`."""
    words, environment = request["words"], request["environment"]
    if request["folder"] is not None:
        os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(environment)
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    sys.orig_argv[:] = words
    main = types.ModuleType("__main__")
    main.__dict__["shown"] = show(words, environment)
    main.__dict__["__builtins__"] = __builtins__
    if words[1] == "-c":
        first, source, name = "", words[2], "<string>"
        sys.argv[:] = ["-c", *words[3:]]
    else:
        name = main.__file__ = words[1]
        first = os.path.dirname(os.path.realpath(name))
        with open(name, encoding="utf-8") as file:
            source = file.read()
        sys.argv[:] = words[1:]
    more = [folder for folder in environment.get("PYTHONPATH", "").split(os.pathsep) if folder]
    sys.path[:] = [first, *more, *rest_of_path]
    importlib.invalidate_caches()
    tempfile.tempdir = None  # TMPDIR may be another
    atexit.register(gc.freeze)  # the end searches no garbage among torch's objects: that would copy them all
    numpy.random.seed()  # Python's own generator is seeded anew by each fork
    torch.default_generator.seed()
    sys.modules["__main__"] = main
    return compile(source, name, "exec", dont_inherit=True), main


def request_and_path() -> tuple[dict | None, list[str]]:
    importlib.import_module("torch._dynamo")  # as the first `zero_grad` or `step` of any job does
    rest = sys.path[1:]
    link = socket.socket(fileno=int(sys.argv[1]))
    gc.collect()
    link.send(b"ready")
    return asked(link), rest


request, path = request_and_path()
if request is not None:
    code, main = become(request, path)
    exec(code, main.__dict__)
