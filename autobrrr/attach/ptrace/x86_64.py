"""Everything about x86-64 that the injector must know: registers, calls, system calls.

Register blocks are the raw bytes of NT_PRSTATUS (27 words, as in the kernel's user_regs_struct).
"""

from __future__ import annotations

import struct

MACHINE = "x86_64"
EXTENDED_NOTES = (0x202,)  # NT_X86_XSTATE: x87, SSE, AVX, AVX-512, AMX
SYSCALL_INSTRUCTION = b"\x0f\x05"
SYS_MMAP = 9
SYS_MPROTECT = 10
SYS_MUNMAP = 11

# System calls in which a thread waits for something outside of itself, and holds no lock of malloc or
# of the dynamic linker: poll, select, pause, nanosleep, recvfrom, recvmsg, accept, wait4, rt_sigtimedwait,
# restart_syscall, clock_nanosleep, epoll_wait, waitid, pselect6, ppoll, epoll_pwait, accept4, epoll_pwait2.
# restart_syscall goes on with a wait that has a timeout and was stopped before; malloc's has none.
WAITS = frozenset((7, 23, 34, 35, 43, 45, 47, 61, 128, 219, 230, 232, 247, 270, 271, 281, 288, 441))
SYS_FUTEX = 202
READS = frozenset((0, 19))  # read, readv: the linker and malloc make them too, of files
# Semaphores and condition variables wait by FUTEX_WAIT_BITSET, mutexes (malloc's) by FUTEX_WAIT.
_FUTEX_WAIT_BITSET, _FUTEX_FLAGS = 9, 128 | 256
# What the kernel leaves in rax of a system call that our stop has interrupted: EINTR, ERESTARTSYS,
# ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK.
_INTERRUPTED = frozenset((-4, -512, -513, -514, -516))

# A thread's body: void *body(table), where the table is nine words (`thread_start.BODY_CALLS`, the page's
# address and size), followed by the source. It calls pthread_detach(pthread_self()), and where Python is not
# down by now, in which the next would fault, PyGILState_Ensure, PyRun_SimpleString(source),
# PyGILState_Release; it ends in munmap of its page, which returns to where the body would have.
THREAD_BODY = bytes.fromhex(
    "53"  # push rbx
    "4154"  # push r12
    "4883ec08"  # sub rsp, 8
    "4889fb"  # mov rbx, rdi
    "ff13"  # call [rbx]: pthread_self
    "4889c7"  # mov rdi, rax
    "ff5308"  # call [rbx + 8]: pthread_detach
    "ff5330"  # call [rbx + 48]: Py_IsInitialized
    "85c0"  # test eax, eax
    "7413"  # je over the next six
    "ff5310"  # call [rbx + 16]: PyGILState_Ensure
    "4189c4"  # mov r12d, eax
    "488d7b48"  # lea rdi, [rbx + 72]: the source
    "ff5318"  # call [rbx + 24]: PyRun_SimpleString
    "4489e7"  # mov edi, r12d
    "ff5320"  # call [rbx + 32]: PyGILState_Release
    "488b7b38"  # mov rdi, [rbx + 56]: the page
    "488b7340"  # mov rsi, [rbx + 64]: its size
    "488b4328"  # mov rax, [rbx + 40]: munmap
    "4883c408"  # add rsp, 8
    "415c"  # pop r12
    "5b"  # pop rbx
    "ffe0"  # jmp rax
)

_REGISTERS = struct.Struct("<27Q")
_R10, _R9, _R8, _RAX, _RCX, _RDX, _RSI, _RDI, _ORIG_RAX, _RIP = range(7, 17)
_EFLAGS, _RSP = 18, 19
_NO_SYSCALL = (1 << 64) - 1  # else the kernel rewinds rip for the interrupted system call
_DIRECTION_FLAG = 0x400  # the ABI wants it clear at a call
_RED_ZONE_BYTES = 128
_HEADROOM_BYTES = 1024
_RESULT_BYTES = 64


def registers_bytes() -> int:
    """Size of one register block."""
    return _REGISTERS.size


def instruction(registers: bytes) -> int:
    """Where the thread stands."""
    return int(_REGISTERS.unpack(registers)[_RIP])


def stack(registers: bytes) -> int:
    """The stack pointer."""
    return int(_REGISTERS.unpack(registers)[_RSP])


def below_stack(registers: bytes) -> int:
    """Room on the stack for up to 64 bytes of results, above the frame of `for_call`."""
    return (stack(registers) - _RED_ZONE_BYTES - _RESULT_BYTES) & ~15


def result(registers: bytes) -> int:
    """What a call or system call returned, signed."""
    (signed,) = struct.unpack("<q", struct.pack("<Q", _REGISTERS.unpack(registers)[_RAX]))
    return int(signed)


def waits(registers: bytes) -> bool:
    """Whether the thread was stopped in a wait of `WAITS`, or for a semaphore or condition variable."""
    words = _REGISTERS.unpack(registers)
    if result(registers) not in _INTERRUPTED:
        return False
    if words[_ORIG_RAX] == SYS_FUTEX:
        return bool(words[_RSI] & 0xFFFFFFFF & ~_FUTEX_FLAGS == _FUTEX_WAIT_BITSET)
    return words[_ORIG_RAX] in WAITS


def reads(registers: bytes) -> int | None:
    """The descriptor that the thread was stopped in a read of; None where it was in none."""
    words = _REGISTERS.unpack(registers)
    if result(registers) not in _INTERRUPTED or words[_ORIG_RAX] not in READS:
        return None
    return int(words[_RDI])


def for_syscall(registers: bytes, gadget: int, number: int, arguments: tuple[int, ...]) -> bytes:
    """Registers that make the system call at `gadget` when the thread takes one step."""
    words = list(_REGISTERS.unpack(registers))
    words[_RAX], words[_ORIG_RAX], words[_RIP] = number, _NO_SYSCALL, gadget
    for place, value in zip((_RDI, _RSI, _RDX, _R10, _R8, _R9), arguments, strict=False):
        words[place] = value & _NO_SYSCALL
    return _REGISTERS.pack(*words)


def for_call(
    registers: bytes, function: int, arguments: tuple[int, ...], return_to: int
) -> tuple[bytes, int, bytes]:
    """Registers that call `function`, with up to six arguments, below the red zone.

    Returns:
        The registers; and where on the stack to write which bytes first (the return address).
    """
    words = list(_REGISTERS.unpack(registers))
    top = ((below_stack(registers) - _HEADROOM_BYTES) & ~15) - 8
    words[_RSP], words[_RIP], words[_ORIG_RAX] = top, function, _NO_SYSCALL
    words[_RAX] = 0
    for place, value in zip((_RDI, _RSI, _RDX, _RCX, _R8, _R9), arguments, strict=False):
        words[place] = value
    words[_EFLAGS] &= ~_DIRECTION_FLAG
    return _REGISTERS.pack(*words), top, struct.pack("<Q", return_to)
