"""`host.malloc`: what it sets is put back wholly, on a fake glibc and on the real one."""

from __future__ import annotations

import platform
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from autobrrr.injected.remedies.process import heap_holes, host_malloc, malloc_thresholds
from autobrrr.injected.remedies.process.glibc import M_ARENA_TEST, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, data_of
from autobrrr.injected.remedies.process.malloc_thresholds import Thresholds
from autobrrr.injected.remedies.registry import Refused

MIB = 1 << 20
ROOT = Path(__file__).resolve().parents[4]
BASE = 0x7F00_0000_0000
# Where a fake keeps them: two foreign words, then as in struct malloc_par.
TRIM, MMAP, ARENA_TEST, MAPPINGS, FIXED = 16, 32, 40, 72, 84
REAL = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
START = f"""
import ctypes, resource, sys
sys.path.insert(0, {str(ROOT)!r})
from autobrrr.injected.remedies.process import host_malloc
from autobrrr.injected.remedies.process.glibc import glibc

MIB = 1 << 20
libc, fill = glibc(), ctypes.CDLL(None).memset
fill.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)

def on():
    return host_malloc.keep_blocks(libc, 1 << 30, host_malloc.KEPT_BYTES)

def learn(mib):
    libc.free(libc.malloc(mib * MIB))

def from_heap(mib):
    block = libc.malloc(mib * MIB)
    found = not libc.is_mapping(block)
    libc.free(block)
    return found

def step(mib, count):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [libc.malloc(mib * MIB) for _ in range(count)]
    for block in blocks:
        fill(block, 1, mib * MIB)
    libc.malloc(1 << 10)  # small, kept, above them
    for block in blocks[::2] + blocks[1::2]:
        libc.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident_mib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 >> 20
"""


class FakeLibc:
    """glibc as far as thresholds are words of its data, and one set by hand ends their raising."""

    def __init__(self, threshold: int, *, fixed: bool = False, takes: int = 1 << 40) -> None:
        self.takes = takes
        self.data = bytearray(128)
        self._write(ARENA_TEST, 8)
        self._write(MMAP, threshold)
        self._write(TRIM, 2 * threshold)
        struct.pack_into("i", self.data, FIXED, fixed)
        self.strangers = 0  # mappings that other threads make during each call of mallopt
        self.hides = 0  # parameter whose word is elsewhere
        self.sizes: dict[int, int] = {}
        self.inside: set[int] = set()  # blocks in what was a hole
        self.plugs: list[int] = []
        self.holes: list[int] = []  # free bytes inside the heap
        self.heap = 1 * MIB

    @property
    def now(self) -> Thresholds:
        return Thresholds(
            mmap_bytes=self.word(BASE + MMAP),
            trim_bytes=self.word(BASE + TRIM),
            fixed=bool(self.flag(BASE + FIXED)),
        )

    def mallopt(self, parameter: int, value: int, /) -> int:
        if parameter == M_MMAP_THRESHOLD and value > self.takes:
            return 0
        places = {M_MMAP_THRESHOLD: MMAP, M_TRIM_THRESHOLD: TRIM, M_ARENA_TEST: ARENA_TEST}
        if parameter != self.hides:
            self._write(places[parameter], value)
        if parameter != M_ARENA_TEST:
            struct.pack_into("i", self.data, FIXED, 1)
        struct.pack_into("i", self.data, MAPPINGS, self.flag(BASE + MAPPINGS) + self.strangers)
        return 1

    def malloc(self, size: int, /) -> int | None:
        block = len(self.sizes) + 1
        self.sizes[block] = size
        fits = [hole for hole in self.holes if hole >= size]
        if fits:
            self.holes.remove(min(fits))
            self.holes.append(min(fits) - size)
            self.inside.add(block)
        elif size < self.now.mmap_bytes:
            self.heap += size
        else:
            struct.pack_into("i", self.data, MAPPINGS, self.flag(BASE + MAPPINGS) + 1)
        return block

    def free(self, block: int, /) -> None:
        size = self.sizes[block]
        if block in self.inside:
            self.holes.append(size)
        elif not self.now.fixed and self.now.mmap_bytes < size <= 32 * MIB:
            self._write(MMAP, size)
            self._write(TRIM, 2 * size)

    def malloc_trim(self, pad: int, /) -> int:
        return 1

    def heap_bytes(self) -> int:
        return self.heap

    def hole_bytes(self) -> int:
        return sum(self.holes)

    def is_mapping(self, block: int, /) -> bool:
        return block not in self.inside and self.sizes[block] >= self.now.mmap_bytes

    def own_data(self) -> list[tuple[int, bytes]]:
        return [(BASE - 4096, bytes(4096)), (BASE, bytes(self.data))]

    def word(self, address: int, /) -> int:
        return int(struct.unpack_from("N", self.data, address - BASE)[0])

    def flag(self, address: int, /) -> int:
        return int(struct.unpack_from("i", self.data, address - BASE)[0])

    def set_flag(self, address: int, value: int, /) -> None:
        struct.pack_into("i", self.data, address - BASE, value)

    def _write(self, place: int, value: int) -> None:
        struct.pack_into("N", self.data, place, value)


@pytest.mark.parametrize("threshold", [128 << 10, 300_000, 5 * MIB, 32 * MIB])
def test_thresholds_are_raised_and_put_back_to_the_byte(threshold: int) -> None:
    libc = FakeLibc(threshold)
    before = libc.now
    for _ in range(2):
        undo = host_malloc.keep_blocks(libc, 1 << 30, 1 << 31)
        assert libc.now == Thresholds(mmap_bytes=1 << 30, trim_bytes=1 << 31, fixed=True)
        with pytest.raises(Refused, match="already"):
            host_malloc.keep_blocks(libc, 1 << 30, 1 << 31)
        undo()
        assert libc.now == before
        undo()
        assert libc.now == before


def test_thresholds_that_the_process_has_set_itself_are_left_alone() -> None:
    libc = FakeLibc(64 * MIB, fixed=True)
    before = libc.now
    for _ in range(2):
        with pytest.raises(Refused, match="set glibc's thresholds itself"):
            host_malloc.keep_blocks(libc, 1 << 30, 1 << 31)
        assert libc.now == before
    found_before = FakeLibc(5 * MIB)
    host_malloc.keep_blocks(found_before, 1 << 30, 1 << 31)()
    found_before.mallopt(M_MMAP_THRESHOLD, 7 * MIB)
    with pytest.raises(Refused, match="set glibc's thresholds itself"):
        host_malloc.keep_blocks(found_before, 1 << 30, 1 << 31)
    assert found_before.now.mmap_bytes == 7 * MIB


def test_thresholds_that_the_process_sets_while_it_is_on_stay_its_own() -> None:
    libc = FakeLibc(5 * MIB)
    undo = host_malloc.keep_blocks(libc, 1 << 30, 1 << 31)
    libc.mallopt(M_MMAP_THRESHOLD, 7 * MIB)
    undo()
    assert libc.now == Thresholds(mmap_bytes=7 * MIB, trim_bytes=1 << 31, fixed=True)


def test_what_can_not_be_found_is_not_set() -> None:
    libc = FakeLibc(5 * MIB)
    libc.hides = M_ARENA_TEST
    before = libc.now
    with pytest.raises(Refused, match="can't be read"):
        host_malloc.keep_blocks(libc, 1 << 30, 1 << 31)
    assert libc.now == before


def test_a_count_that_rises_meanwhile_is_not_taken_for_the_flag() -> None:
    libc = FakeLibc(5 * MIB)
    libc.strangers = 1
    before = libc.now
    assert malloc_thresholds.find(libc).fixed == BASE + FIXED
    assert libc.now == before


def test_while_it_is_off_the_heap_has_as_many_free_bytes_in_holes_as_before() -> None:
    libc = FakeLibc(5 * MIB)
    libc.holes = [3 * MIB, 40 * MIB]
    undo = host_malloc.keep_blocks(libc, 1 << 30, 1 << 31)
    libc.heap += 300 * MIB
    libc.holes = [36 * MIB, 100 * MIB, 11 * MIB, 40 * MIB]
    undo()
    left = sum(libc.holes) - 43 * MIB
    assert 0 <= left < heap_holes.SMALLEST_BYTES
    assert libc.plugs
    undo = host_malloc.keep_blocks(libc, 1 << 30, 1 << 31)
    assert not libc.plugs
    assert sum(libc.holes) == 187 * MIB
    undo()
    assert sum(libc.holes) == 43 * MIB + left


def test_holes_that_glibc_learns_to_use_are_left_to_the_job() -> None:
    libc = FakeLibc(5 * MIB)
    undo = host_malloc.keep_blocks(libc, 1 << 30, 1 << 31)
    libc.holes = [8 * MIB, 8 * MIB, 12 * MIB]
    undo()
    assert not libc.plugs


def test_time_that_giving_pages_back_takes_is_not_taken_from_the_filling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [0.0]

    class SlowLibc(FakeLibc):
        def malloc_trim(self, pad: int, /) -> int:
            now_s[0] += 1.0
            return 1

    monkeypatch.setattr(heap_holes.time, "thread_time", lambda: now_s[0])
    monkeypatch.setattr(heap_holes.time, "perf_counter", lambda: now_s[0])
    libc = SlowLibc(1 << 30)
    libc.holes = [64 * MIB]
    heap_holes.fill(libc, 0)
    assert libc.plugs


def run(script: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", START + script], capture_output=True, text=True, check=True)
    return done.stdout.split()


@REAL
@pytest.mark.integration
def test_after_the_undo_large_blocks_come_from_new_pages_again_at_once() -> None:
    """Six temporaries of 36 MiB, which glibc never learns to keep."""
    before, settled, after, resident_mib = map(
        int,
        run("""
before, had = step(36, 6), resident_mib()
for _ in range(2):
    undo = on()
    settled = [step(36, 6) for _ in range(6)][-1]
    undo()
    after = min(step(36, 6) for _ in range(4))
print(before, settled, after, resident_mib() - had)
"""),
    )
    pages = 6 * 36 * MIB // 4096
    assert before >= pages
    assert settled < pages // 100
    assert after >= pages
    assert resident_mib < 36


@REAL
@pytest.mark.integration
def test_after_the_undo_blocks_that_glibc_had_learnt_to_keep_cost_what_they_did() -> None:
    """The heap's top is given back above twice the learnt threshold, neither later nor sooner."""
    before, settled, after = map(
        int,
        run("""
learn(4)
def faults():
    return sorted(step(3, 12) for _ in range(9))[4]
step(3, 12)
before = faults()
for _ in range(3):
    undo = on()
    step(3, 12)
    settled = faults()
    undo()
step(3, 12)
print(before, settled, faults())
"""),
    )
    assert before > 1000
    assert settled < before // 10
    assert abs(after - before) < before // 50


@REAL
@pytest.mark.integration
def test_after_the_undo_glibc_learns_on_as_in_a_process_never_touched() -> None:
    learnt = run("""
learn(4)
print(from_heap(3), from_heap(6))
on()()
print(from_heap(3), from_heap(10))  # by freeing one of 10 it has learnt that
print(from_heap(9))
""")
    assert learnt == ["True", "False", "True", "False", "True"]


@pytest.mark.parametrize(
    ("environment", "refused"),
    [
        ({"MALLOC_MMAP_THRESHOLD_": "33554432"}, True),
        ({"MALLOC_TRIM_THRESHOLD_": "0"}, True),
        ({"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=1048576"}, True),
        ({"GLIBC_TUNABLES": "glibc.rtld.nns=4", "MALLOC_ARENA_MAX": "2"}, False),
    ],
)
def test_thresholds_that_stand_in_the_environment_are_left_alone(
    environment: Mapping[str, str], refused: bool
) -> None:
    if refused:
        with pytest.raises(Refused, match="the user's own"):
            host_malloc.refuse_own_settings(environment)
    else:
        host_malloc.refuse_own_settings(environment)


def test_a_glibc_with_a_limit_gets_the_most_it_takes_and_one_that_takes_nothing_is_refused() -> None:
    nothing = FakeLibc(128 << 10, takes=1 * MIB)
    with pytest.raises(Refused):
        host_malloc.keep_blocks(nothing, 1 << 30, 1 << 31)
    assert not nothing.now.fixed
    limited = FakeLibc(128 << 10, takes=40 * MIB)
    before = limited.now
    undo = host_malloc.keep_blocks(limited, 1 << 30, 40 * MIB)
    assert limited.now.mmap_bytes == 32 * MIB
    undo()
    assert limited.now == before


def test_the_data_of_a_library_is_the_writable_part_of_its_own_file() -> None:
    maps = (
        "7f00-7f10 r-xp 00000000 08:01 77 /usr/lib/libc.so.6\n"
        "7f10-7f20 rw-p 00010000 08:01 77 /usr/lib/libc.so.6\n"
        "7f20-7f30 rw-p 00000000 00:00 0\n"
        "8000-8010 rw-p 00000000 08:01 78 /usr/lib/x y.so (deleted)\n"
    )
    assert data_of(0x7F05, maps) == [(0x7F10, 0x7F20)]
    assert data_of(0x7F25, maps) == []
