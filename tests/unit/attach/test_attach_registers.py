"""Borrowed registers: the call stands below the red zone, aligned, and restarts no system call."""

from __future__ import annotations

import struct

import pytest

from autobrrr.attach.ptrace import x86_64

RSP, RIP, EFLAGS, ORIG_RAX, RAX, RDI, RSI = 19, 16, 18, 15, 10, 14, 13
NO_SYSCALL = 2**64 - 1


def registers(**words: int) -> bytes:
    places = {"rsi": RSI, "rsp": RSP, "rip": RIP, "eflags": EFLAGS, "orig_rax": ORIG_RAX, "rax": RAX}
    block = [number * 0x1111 for number in range(27)]
    for name, value in words.items():
        block[places[name]] = value
    return struct.pack("<27Q", *block)


def word(block: bytes, place: int) -> int:
    return int(struct.unpack("<27Q", block)[place])


@pytest.mark.parametrize("rsp", [0x7FFE00000000, 0x7FFE00000008, 0x7FFE0000000F])
def test_a_call_leaves_the_red_zone_and_is_aligned_as_the_abi_wants(rsp: int) -> None:
    block, top, frame = x86_64.for_call(registers(rsp=rsp), 0xCAFE, (1, 2), 0xBEEF)
    assert top <= rsp - 128 - 8
    assert (top + 8) % 16 == 0
    assert frame == struct.pack("<Q", 0xBEEF)
    assert (word(block, RSP), word(block, RIP)) == (top, 0xCAFE)
    assert (word(block, RDI), word(block, RSI)) == (1, 2)


def test_a_call_restarts_no_system_call_and_clears_the_direction_flag() -> None:
    block, _, _ = x86_64.for_call(registers(rsp=1 << 40, orig_rax=202, eflags=0x646), 1, (0, 0), 0)
    assert word(block, ORIG_RAX) == NO_SYSCALL
    assert word(block, EFLAGS) == 0x246


def test_a_system_call_has_its_arguments_where_the_kernel_looks() -> None:
    block = x86_64.for_syscall(registers(), 0x7FFD, x86_64.SYS_MMAP, (0, 4096, 3, 0x22, -1, 0))
    assert [word(block, place) for place in (14, 13, 12, 7, 9, 8)] == [0, 4096, 3, 0x22, NO_SYSCALL, 0]
    assert (word(block, RAX), word(block, RIP), word(block, ORIG_RAX)) == (9, 0x7FFD, NO_SYSCALL)


@pytest.mark.parametrize("value", [0, 1, -1, -12, 2**62])
def test_results_are_signed(value: int) -> None:
    assert x86_64.result(registers(rax=value & NO_SYSCALL)) == value


EPOLL_WAIT, FUTEX, MADVISE, BRK, READ = 232, 202, 28, 12, 0
EINTR, RESTART = -4, -512
FUTEX_WAIT_PRIVATE, WAIT_BITSET_PRIVATE, WAIT_BITSET_CLOCK = 128, 137, 393


@pytest.mark.parametrize(
    ("call", "rax", "operation", "waits"),
    [
        (EPOLL_WAIT, EINTR, 0, True),
        (FUTEX, RESTART, WAIT_BITSET_PRIVATE, True),
        (FUTEX, RESTART, WAIT_BITSET_CLOCK, True),
        (219, -516, 0, True),  # goes on with a timeout
        (FUTEX, RESTART, FUTEX_WAIT_PRIVATE, False),  # before a mutex, as malloc's
        *((call, RESTART, 0, False) for call in (MADVISE, BRK, READ, 9, 11)),  # of malloc or the linker
        *((EPOLL_WAIT, rax, 0, False) for rax in (0, 1, 5, -11)),  # it has ended
    ],
)
def test_a_thread_waits_in_epoll_or_for_a_semaphore_and_in_no_other_call(
    call: int, rax: int, operation: int, waits: bool
) -> None:
    block = registers(orig_rax=call & NO_SYSCALL, rax=rax & NO_SYSCALL, rsi=operation)
    assert x86_64.waits(block) is waits


def test_results_on_the_stack_lie_below_the_red_zone_and_above_the_frame() -> None:
    block = registers(rsp=0x7FFE0000FFF8)
    _, top, _ = x86_64.for_call(block, 1, (0,), 0)
    room = x86_64.below_stack(block)
    assert top + 8 < room <= 0x7FFE0000FFF8 - 128 - 64
    assert room % 16 == 0
