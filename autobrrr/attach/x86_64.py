"""Everything about x86-64 that the injector must know: registers, calls, system calls.

Another architecture is another file with the same names, entered into `strike.ARCHITECTURES`.
Register blocks are the raw bytes of NT_PRSTATUS (27 words, as in the kernel's user_regs_struct).
"""

from __future__ import annotations

import struct

ELF_MACHINE = 62
EXTENDED_NOTES = (0x202,)  # NT_X86_XSTATE: x87, SSE, AVX, AVX-512, AMX
SYSCALL_INSTRUCTION = b"\x0f\x05"
SYS_MMAP = 9
SYS_MUNMAP = 11

_REGISTERS = struct.Struct("<27Q")
_R10, _R9, _R8, _RAX, _RDX, _RSI, _RDI, _ORIG_RAX, _RIP, _EFLAGS, _RSP = (
    7,
    8,
    9,
    10,
    12,
    13,
    14,
    15,
    16,
    18,
    19,
)
_NO_SYSCALL = (1 << 64) - 1  # else the kernel rewinds rip for the interrupted system call
_DIRECTION_FLAG = 0x400  # the ABI wants it clear at a call
_RED_ZONE_BYTES = 128
_HEADROOM_BYTES = 1024


def registers_bytes() -> int:
    """Size of one register block."""
    return _REGISTERS.size


def instruction(registers: bytes) -> int:
    """Where the thread stands."""
    return int(_REGISTERS.unpack(registers)[_RIP])


def stack(registers: bytes) -> int:
    """The stack pointer."""
    return int(_REGISTERS.unpack(registers)[_RSP])


def result(registers: bytes) -> int:
    """What a call or system call returned, signed."""
    (signed,) = struct.unpack("<q", struct.pack("<Q", _REGISTERS.unpack(registers)[_RAX]))
    return int(signed)


def for_syscall(registers: bytes, gadget: int, number: int, arguments: tuple[int, ...]) -> bytes:
    """Registers that make the system call at `gadget` when the thread takes one step."""
    words = list(_REGISTERS.unpack(registers))
    words[_RAX], words[_ORIG_RAX], words[_RIP] = number, _NO_SYSCALL, gadget
    for place, value in zip((_RDI, _RSI, _RDX, _R10, _R8, _R9), arguments, strict=False):
        words[place] = value & _NO_SYSCALL
    return _REGISTERS.pack(*words)


def for_call(
    registers: bytes, function: int, arguments: tuple[int, int], return_to: int
) -> tuple[bytes, int, bytes]:
    """Registers that call `function` below the red zone.

    Returns:
        The registers; and where on the stack to write which bytes first (the return address).
    """
    words = list(_REGISTERS.unpack(registers))
    top = ((words[_RSP] - _RED_ZONE_BYTES - _HEADROOM_BYTES) & ~15) - 8
    words[_RSP], words[_RIP], words[_ORIG_RAX] = top, function, _NO_SYSCALL
    words[_RDI], words[_RSI], words[_RAX] = arguments[0], arguments[1], 0
    words[_EFLAGS] &= ~_DIRECTION_FLAG
    return _REGISTERS.pack(*words), top, struct.pack("<Q", return_to)
