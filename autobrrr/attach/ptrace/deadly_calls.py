"""Whether a process's filters of system calls would kill it for what the agent does.

A filter may refuse a call, which the agent tells, or kill for it (SystemCallFilter= of systemd does). The
kernel hands filters to a tracer that has CAP_SYS_ADMIN and no filter itself; here they are run as it does.
It runs in the injector's own process, while the thread stands still.
"""

from __future__ import annotations

import ctypes
import operator
import struct
from collections.abc import Callable, Sequence

from autobrrr.attach.ptrace.ptrace_calls import libc

_GET_FILTER = 0x420C
_ARCHITECTURE = 0xC000003E  # AUDIT_ARCH_X86_64
_MOST_FILTERS, _MOST_INSTRUCTIONS, _MOST_STEPS = 64, 4096, 1 << 16
_KILLING = (0x80000000, 0x00000000, 0x00030000)  # the process, the thread, and SIGSYS
_ACTION, _WORD = 0xFFFF0000, 0xFFFFFFFF
CALLS: dict[str, tuple[int, ...]] = {  # of the agent, with the arguments that filters look at
    "socket": (41, 1, 1),
    "socketpair": (53, 1, 1),
    "connect": (42,),
    "getsockopt": (55, 0, 1, 17),
    "getsockname": (51,),
    "ioctl": (16, 0, 0x5421),
    "poll": (7,),
    "sendto": (44,),
    "sendmsg": (46,),
    "recvfrom": (45,),
    "memfd_create": (319,),
    "ftruncate": (77,),
    "fcntl": (72, 0, 1033),
    "mmap": (9, 0, 4096, 3, 0x22),
    "mprotect": (10, 0, 4096, 5),
    "munmap": (11,),
    "clone": (56, 0x3D0F00),
    "clone3": (435, 0, 88),
    "set_robust_list": (273,),
    "rseq": (334,),
    "getrusage": (98,),
    "sched_getaffinity": (204,),
    "sched_setaffinity": (203,),
    "getpriority": (140,),
    "setpriority": (141,),
    "symlink": (88,),
    "mkdir": (83,),
    "rename": (82,),
    "unlink": (87,),
    "rmdir": (84,),
    "unlinkat": (263,),
    "pidfd_open": (434,),
}
Instruction = tuple[int, ...]  # code, places to jump on if so and if not, operand
_ALU: dict[int, Callable[[int, int], int]] = {
    0x00: operator.add,
    0x10: operator.sub,
    0x20: operator.mul,
    0x30: lambda a, b: a // b if b else 0,
    0x40: operator.or_,
    0x50: operator.and_,
    0x60: lambda a, b: a << (b & 31),
    0x70: lambda a, b: a >> (b & 31),
    0x80: lambda a, b: -a,
    0xA0: operator.xor,
}
_TESTS: dict[int, Callable[[int, int], object]] = {
    0x10: operator.eq,
    0x20: operator.gt,
    0x30: operator.ge,
    0x40: operator.and_,
}


def deadly(tid: int) -> list[str]:
    """The calls for which a stopped thread would be killed; none where its filters are not for us."""
    found: set[str] = set()
    program = ctypes.create_string_buffer(8 * _MOST_INSTRUCTIONS)
    for index in range(_MOST_FILTERS):
        count = libc.ptrace(_GET_FILTER, tid, index, ctypes.addressof(program))
        if count <= 0:
            break
        code = list(struct.iter_unpack("<HBBI", program.raw[: 8 * count]))
        found.update(name for name, call in CALLS.items() if is_deadly(code, call))
    return [name for name in CALLS if name in found]


def is_deadly(code: Sequence[Instruction], call: Sequence[int]) -> bool:
    """Whether a filter kills for a system call: its number, then its arguments; or can't be run."""
    data = struct.pack("<iIQ6Q", call[0], _ARCHITECTURE, 0, *call[1:], *[0] * (7 - len(call)))
    try:
        return _run(code, data) & _ACTION in _KILLING
    except (IndexError, KeyError, struct.error):
        return True


def _run(code: Sequence[Instruction], data: bytes) -> int:
    """What a filter answers: classic BPF, of which seccomp allows this much."""
    a = x = at = 0
    memory = [0] * 16
    for _ in range(_MOST_STEPS):
        op, yes, no, k = code[at]
        at += 1
        kind, what, operand = op & 0x07, op & 0xF0, x if op & 0x08 else k
        if kind in (0x00, 0x01):  # load into a, x
            modes = {0x20: lambda k: struct.unpack_from("<I", data, k)[0], 0x60: memory.__getitem__}
            found = modes[op & 0xE0](k) if op & 0xE0 in modes else len(data) if op & 0xE0 == 0x80 else k
            a, x = (a, found) if kind else (found, x)
        elif kind in (0x02, 0x03):  # store a, x
            memory[k] = x if kind == 0x03 else a
        elif kind == 0x04:
            a = _ALU[what](a, operand) & _WORD
        elif kind == 0x05:
            at += k if not what else yes if _TESTS[what](a, operand) else no
        elif kind == 0x06:
            return a if op & 0x18 == 0x10 else k
        else:  # a to x, x to a
            a, x = (x, x) if op & 0xF8 else (a, a)
    return 0
