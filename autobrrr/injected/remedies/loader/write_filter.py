"""System calls that end the process from now on, whoever makes them: a filter of the kernel's (seccomp).

Those that open files to write, make, change, move or remove them, start or signal processes. Sockets of this
machine (AF_UNIX) can't be made. Numbers are those of Linux on x86-64; threads may be started.
"""

from __future__ import annotations

import ctypes
import os
import struct

_AUDIT_ARCH_X86_64 = 0xC000003E
_X32_BIT = 0x40000000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # places in what the filter is given
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_ENOSYS, _EACCES = 38, 13
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CLONE_THREAD = 0x10000
_AF_UNIX = 1

_FORBIDDEN = {
    "fork": 57, "vfork": 58, "execve": 59, "kill": 62, "truncate": 76, "rename": 82, "mkdir": 83,
    "rmdir": 84, "creat": 85, "link": 86, "unlink": 87, "symlink": 88, "chmod": 90, "fchmod": 91,
    "chown": 92, "fchown": 93, "lchown": 94, "ptrace": 101, "rt_sigqueueinfo": 129, "utime": 132,
    "mknod": 133, "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "removexattr": 197,
    "lremovexattr": 198, "fremovexattr": 199, "tkill": 200, "tgkill": 234, "utimes": 235,
    "mkdirat": 258, "mknodat": 259, "fchownat": 260, "futimesat": 261, "unlinkat": 263, "renameat": 264,
    "linkat": 265, "symlinkat": 266, "fchmodat": 268, "utimensat": 280, "process_vm_writev": 311,
    "renameat2": 316, "execveat": 322, "pidfd_send_signal": 424, "fchmodat2": 452,
}  # fmt: skip
_OPEN, _OPENAT, _CLONE, _SOCKET = 2, 257, 56, 41
_BY_POINTER = {"clone3": 435, "openat2": 437}  # can't be looked into; callers have another way


def forbid_writes(libc: ctypes.CDLL) -> None:
    """Put the filter on, for good.

    Raises:
        OSError: the kernel takes no filter.
    """
    program = b"".join(_program())
    held = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(held))
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, described):
        raise OSError(ctypes.get_errno(), "no filter of system calls")


def _program() -> list[bytes]:
    lines = [
        _line(_LOAD, _ARCHITECTURE),
        _line(_EQUAL, _AUDIT_ARCH_X86_64, yes=1),
        _line(_RETURN, _KILL),
        _line(_LOAD, _NUMBER),
        _line(_AT_LEAST, _X32_BIT, no=1),
        _line(_RETURN, _KILL),
    ]
    for number in _FORBIDDEN.values():
        lines += [_line(_EQUAL, number, no=1), _line(_RETURN, _KILL)]
    for number in _BY_POINTER.values():
        lines += [_line(_EQUAL, number, no=1), _line(_RETURN, _ERRNO | _ENOSYS)]
    lines += _where(_OPEN, 1, _ANY_BIT, _WRITING, _KILL)
    lines += _where(_OPENAT, 2, _ANY_BIT, _WRITING, _KILL)
    lines += _where(_SOCKET, 0, _EQUAL, _AF_UNIX, _ERRNO | _EACCES)
    lines += _where(_CLONE, 0, _ANY_BIT, _CLONE_THREAD, _ALLOW, otherwise=_KILL)
    return [*lines, _line(_RETURN, _ALLOW)]


def _where(
    number: int, argument: int, compare: int, with_: int, answer: int, *, otherwise: int = _ALLOW
) -> list[bytes]:
    """What one call is answered, by its argument."""
    return [
        _line(_EQUAL, number, no=4),
        _line(_LOAD, _FIRST_ARGUMENT + 8 * argument),
        _line(compare, with_, no=1),
        _line(_RETURN, answer),
        _line(_RETURN, otherwise),
    ]


def _line(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """One instruction; `yes` and `no` say how many to leap over."""
    return struct.pack("HBBI", code, yes, no, value)
