"""Before the stop is used: which thread, and not while it stands where the call could deadlock."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from autobrrr.attach.ptrace import borrowed_thread, injector, kept_tracer, pending_call, thread_start, x86_64
from autobrrr.attach.ptrace.pending_call import PendingCall
from autobrrr.errors import CannotAttach
from autobrrr.machine.same_program import Program
from support.machines.fake_proc import FakeProc

STACK_AT = 0x1800
LOW, HIGH = 0x5000, 0x5100


def by_call(*, any_thread: bool = False) -> PendingCall:
    return PendingCall(target=target(any_thread=any_thread), code=b"")


def target(*, any_thread: bool) -> borrowed_thread.InjectionSite:
    return borrowed_thread.InjectionSite(
        pid=10,
        program=Program(1, 4, 0, 0),
        add_pending=LOW,
        run_string=0x9000,
        gadget=0x7000,
        avoid=((LOW, HIGH),),
        any_thread=any_thread,
    )


def registers(rip: int) -> bytes:
    words = [0] * 27
    words[16], words[19] = rip, STACK_AT
    return struct.pack("<27Q", *words)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[int]:
    """A file as the target's memory: a stack of ones from STACK_AT on."""
    file = tmp_path / "mem"
    file.write_bytes(bytes(STACK_AT) + struct.pack("<Q", 1) * 300)
    fd = os.open(file, os.O_RDWR)
    yield fd
    os.close(fd)


def is_inside(rip: int, memory: int) -> bool:
    return by_call().objection(registers(rip), memory) != ""


def test_a_thread_elsewhere_may_be_borrowed(memory: int) -> None:
    assert not is_inside(HIGH, memory)


@pytest.mark.parametrize("rip", [LOW, HIGH - 1])
def test_a_thread_in_the_machinery_may_not(rip: int, memory: int) -> None:
    assert is_inside(rip, memory)


@pytest.mark.parametrize("depth", [0, 57, pending_call.STACK_WORDS - 1])
def test_nor_one_that_will_return_into_it(depth: int, memory: int) -> None:
    os.pwrite(memory, struct.pack("<Q", LOW + 8), STACK_AT + 8 * depth)
    assert is_inside(HIGH, memory)


def test_before_python_3_13_it_is_the_main_thread(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.add(10)
    assert by_call().choose_thread(1, proc.root) == 10


@pytest.mark.parametrize(("state", "chosen"), [("S", 11), ("R", 10), ("D", 10)])
def test_from_3_13_on_one_that_sleeps_beside_it(state: str, chosen: int, tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.add(10)
    beside = proc.root / "10" / "task" / "11"
    beside.mkdir()
    (beside / "stat").write_text(f"11 (autograd) {state} {' 1' * 30}\n".replace("  ", " "))
    assert by_call(any_thread=True).choose_thread(1, proc.root) == chosen


def test_a_thread_that_is_filtered_otherwise_than_the_main_one_is_not_borrowed(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.add(10)
    for tid, filters in ((10, 2), (11, 1), (12, 2)):  # the first was started before a filter was set up
        folder = proc.root / "10" / "task" / str(tid)
        folder.mkdir(exist_ok=True)
        (folder / "stat").write_text(f"{tid} (autograd) S{' 1' * 30}\n")
        (folder / "status").write_text(f"Seccomp:\t2\nSeccomp_filters:\t{filters}\n")
    assert by_call(any_thread=True).choose_thread(1, proc.root) == 12


def test_the_page_words_have_the_length_of_what_replaces_them() -> None:
    assert len(pending_call.PAGE_WORD) == len(pending_call.PAGE_BYTES_WORD) == len(b"0x%016x" % 1)
    code = injector.compose("pass", "/tmp/x").encode()
    assert code.count(pending_call.PAGE_WORD) == code.count(pending_call.PAGE_BYTES_WORD) == 1


def test_a_thread_is_started_from_the_main_one_else_from_those_that_sleep_in_turn(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.add(10)
    for tid, state in ((11, "S"), (12, "R"), (13, "S")):
        beside = proc.root / "10" / "task" / str(tid)
        beside.mkdir()
        (beside / "stat").write_text(f"{tid} (autograd) {state}{' 1' * 30}\n")
    way = thread_start.NewThread(target=target(any_thread=True), code=b"", create=1, functions=())
    assert [way.choose_thread(tries, proc.root) for tries in range(1, 5)] == [10, 11, 13, 10]


def test_a_thread_is_not_started_from_one_that_runs(memory: int) -> None:
    way = thread_start.NewThread(target=target(any_thread=True), code=b"", create=1, functions=())
    assert "waits in the kernel" in way.objection(registers(HIGH), memory)


class SlowThread:
    """A borrowed thread that gets a CPU after 0.3 s; what it is made to do is noted."""

    PAGE = 0x4000

    def __init__(self) -> None:
        self.now = registers(HIGH)
        self.system_calls: list[int] = []

    def registers(self) -> bytes:
        return self.now

    def set_registers(self, block: bytes) -> None:
        self.now = block

    def step(self, timeout_s: float) -> bool:
        words = list(struct.unpack("<27Q", self.now))
        self.system_calls.append(words[10])
        words[10] = self.PAGE if words[10] == x86_64.SYS_MMAP else 0
        self.now = struct.pack("<27Q", *words)
        return timeout_s > 0.3

    def run_until_fault(self, timeout_s: float) -> bool:
        words = list(struct.unpack("<27Q", self.now))
        self.called, self.arguments = words[16], [words[place] for place in (14, 13, 12, 11)]
        words[16], words[10] = thread_start.RETURN_TO, 0
        self.now = struct.pack("<27Q", *words)
        return timeout_s > 0.3


def test_a_slow_thread_is_given_time_to_start_another(memory: int) -> None:
    names = range(0x100, 0x100 + len(thread_start.BODY_CALLS))
    way = thread_start.NewThread(
        target=target(any_thread=False), code=b"print()", create=0xCAFE, functions=tuple(names)
    )
    os.pwrite(memory, bytes(0x2000), 0x4000)
    thread, state = SlowThread(), borrowed_thread.InjectedCall()
    way.call(thread, memory, state)  # type: ignore[arg-type]
    assert state.done
    assert thread.system_calls == [x86_64.SYS_MMAP, x86_64.SYS_MPROTECT]
    table_at = SlowThread.PAGE + thread_start.TABLE_AT
    assert (thread.called, thread.arguments[1:]) == (0xCAFE, [0, SlowThread.PAGE, table_at])
    assert os.pread(memory, len(x86_64.THREAD_BODY), SlowThread.PAGE) == x86_64.THREAD_BODY
    table = struct.unpack("<9Q", os.pread(memory, 72, table_at))
    assert table == (*names, SlowThread.PAGE, 4096)
    assert os.pread(memory, 8, SlowThread.PAGE + thread_start.SOURCE_AT) == b"print()\0"


def test_a_thread_that_gets_no_cpu_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = FakeProc(tmp_path)
    proc.add(10)
    (proc.root / "10" / "mem").touch()
    tries: list[int] = []

    def once(way: PendingCall, tid: int, memory: int, state: borrowed_thread.InjectedCall) -> None:
        tries.append(tid)
        if len(tries) < 3:
            raise borrowed_thread.NotInTime
        state.done = True

    monkeypatch.setattr(borrowed_thread, "_once", once)
    assert borrowed_thread.strike(by_call(), proc.root).tries == 3
    monkeypatch.setattr(borrowed_thread, "RETRY_FOR_S", 0.01)

    def never(*_: object) -> None:
        raise borrowed_thread.NotInTime

    monkeypatch.setattr(borrowed_thread, "_once", never)
    with pytest.raises(CannotAttach, match="took too long"):
        borrowed_thread.strike(by_call(), proc.root)


def test_the_injector_has_more_time_than_all_of_its_waits() -> None:
    """Killed in the middle of a call it would end the job."""
    work_s = max(2 * thread_start.STEP_S + thread_start.CALL_S, 2 * borrowed_thread.CALL_S)
    waits_s = borrowed_thread.RETRY_FOR_S + borrowed_thread.STOP_S + work_s
    assert 1.25 * waits_s + borrowed_thread.BACK_S < kept_tracer.ANSWER_S
