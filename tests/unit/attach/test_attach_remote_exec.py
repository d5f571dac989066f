"""Where a script is asked for in a process's memory, and every reason not to ask. The memory is a file."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import pytest

from autobrrr.attach import remote_exec
from autobrrr.attach.remote_exec import RemoteExecClosed, asked, find
from autobrrr.errors import TargetGone
from autobrrr.machine import own_place, same_program
from support.machines.fake_proc import FakeProc

PID = 77
RUNTIME, YOUNGER, MAIN, THREAD = 0x100, 0x1000, 0x2000, 0x3000
SUPPORT, ENABLED = 0x200, 0x80
FINAL = 0x030E0AF0


@dataclass
class Memory:
    """A made-up target: two interpreters, the younger one first in the list."""

    proc: FakeProc

    @property
    def file(self) -> Path:
        return self.proc.root / str(PID) / "mem"

    def read(self, address: int, count: int) -> bytes:
        return self.file.read_bytes()[address : address + count]

    def write(self, address: int, data: bytes) -> None:
        whole = bytearray(self.file.read_bytes())
        whole[address : address + len(data)] = data
        self.file.write_bytes(whole)

    def word(self, address: int, value: int) -> None:
        self.write(address, struct.pack("<Q", value))

    def table(self, index: int, value: int) -> None:
        self.word(RUNTIME + 8 * index, value)

    @property
    def asks(self) -> tuple[int, bytes, int]:
        """Whether a script waits, its path, and the lowest byte of the eval breaker."""
        support = self.read(THREAD + SUPPORT, 600)
        path = support[4:].split(b"\0")[0]
        return struct.unpack("<i", support[:4])[0], path, self.read(THREAD + 0x18, 1)[0]


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Memory:
    proc = FakeProc(tmp_path)
    proc.add(PID)
    made = Memory(proc)
    made.file.write_bytes(bytes(0x4000))
    made.write(RUNTIME, b"xdebugpy")
    table = {1: FINAL, 5: 0x400, 7: 0x8, 8: 0x10, 10: 0x40, 28: 0x30, 89: 0x18, 90: SUPPORT, 91: ENABLED}
    for index, value in {**table, 92: 0, 93: 4, 94: 512}.items():
        made.table(index, value)
    made.word(RUNTIME + 0x400, YOUNGER)
    made.word(YOUNGER + 0x8, 1)
    made.word(YOUNGER + 0x10, MAIN)
    made.word(MAIN + 0x40, THREAD)
    made.write(MAIN + ENABLED, struct.pack("<i", 1))
    made.word(THREAD + 0x30, PID)
    made.write(THREAD + 0x18, b"\x42\x99")
    monkeypatch.setattr(remote_exec, "_runtime", lambda pid, root: RUNTIME)
    return made


def obstacle(memory: Memory) -> str:
    with pytest.raises(RemoteExecClosed) as caught:
        find(PID, memory.proc.root)
    return str(caught.value)


def test_the_script_is_asked_of_the_main_interpreters_main_thread_and_taken_back(memory: Memory) -> None:
    slot = find(PID, memory.proc.root)
    with asked(slot, "/tmp/script.py", memory.proc.root):
        assert memory.asks == (1, b"/tmp/script.py", 0x42 | 1 << 5)
        assert memory.read(THREAD + 0x19, 1) == b"\x99"
    assert memory.asks[:2] == (0, b"")


def test_what_another_tool_has_asked_meanwhile_stays(memory: Memory) -> None:
    with asked(find(PID, memory.proc.root), "/tmp/script.py", memory.proc.root):
        memory.write(THREAD + SUPPORT, struct.pack("<i", 1) + b"/tmp/theirs.py\0")
    assert memory.asks[:2] == (1, b"/tmp/theirs.py")


def test_a_script_that_waits_already_is_left_alone(memory: Memory) -> None:
    memory.write(THREAD + SUPPORT, struct.pack("<i", 1) + b"/tmp/theirs.py\0")
    with (
        pytest.raises(RemoteExecClosed) as caught,
        asked(find(PID, memory.proc.root), "/tmp/script.py", memory.proc.root),
    ):
        pass
    assert str(caught.value) == remote_exec.IN_USE
    assert memory.asks == (1, b"/tmp/theirs.py", 0x42)


def test_a_path_that_does_not_fit_is_not_written(memory: Memory) -> None:
    slot = find(PID, memory.proc.root)
    with pytest.raises(ValueError, match="511 fit"), asked(slot, "/" + "x" * 511, memory.proc.root):
        pass
    assert memory.asks == (0, b"", 0x42)


def test_a_process_in_which_it_is_switched_off_is_not_asked(memory: Memory) -> None:
    memory.write(MAIN + ENABLED, struct.pack("<i", 0))
    assert obstacle(memory) == remote_exec.SWITCHED_OFF


@pytest.mark.parametrize(
    ("index", "value"), [(1, 0x030D00F0), (1, 0x030F00F0), (1, 0x030E00B3), (1, 0x030E00C2), (2, 1)]
)
def test_a_table_of_another_release_or_build_is_not_believed(index: int, value: int, memory: Memory) -> None:
    memory.table(index, value)
    assert obstacle(memory) == remote_exec.NO_TABLE


@pytest.mark.parametrize("index", [0, 5, 10, 89, 90, 93])
def test_a_broken_table_is_not_believed(index: int, memory: Memory) -> None:
    memory.table(index, 1 << 40)
    assert obstacle(memory) == remote_exec.NO_TABLE


def test_a_thread_state_that_is_not_the_main_threads_is_not_written_to(memory: Memory) -> None:
    memory.word(THREAD + 0x30, PID + 1)
    assert obstacle(memory) == remote_exec.NO_MAIN_THREAD


def test_in_a_container_the_main_thread_has_the_number_that_it_has_there(memory: Memory) -> None:
    memory.proc.add(PID, NSpid=f"{PID}\t1")
    memory.word(THREAD + 0x30, 1)
    assert find(PID, memory.proc.root).pid == PID


def test_a_process_whose_calls_are_filtered_is_looked_at_in_a_stop_where_that_shows_them(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = memory.proc.root / str(PID) / "status"
    status.write_text(status.read_text() + "Seccomp:\t2\n")
    monkeypatch.setattr(own_place, "look", own_place.OwnPlace)
    assert find(PID, memory.proc.root).pid == PID
    monkeypatch.setattr(own_place, "look", lambda: own_place.OwnPlace(capabilities=own_place.CAP_SYS_ADMIN))
    assert obstacle(memory) == remote_exec.FILTERED


def test_nothing_is_written_into_what_the_target_has_become_by_an_exec(memory: Memory) -> None:
    slot = find(PID, memory.proc.root)
    looked_at = same_program.seen(PID, memory.proc.root)
    for now in ({"stack_start": looked_at.stack_start + 16}, {"uid": looked_at.uid + 1}):
        memory.proc.add(PID, **now)
        with (
            pytest.raises(TargetGone, match="another program"),
            asked(slot, "/tmp/script.py", memory.proc.root, program=looked_at),
        ):
            pass
        assert memory.asks == (0, b"", 0x42)


def test_nor_when_it_is_taken_back(memory: Memory) -> None:
    slot = find(PID, memory.proc.root)
    with asked(slot, "/tmp/script.py", memory.proc.root):
        another = memory.file.read_bytes()
        memory.file.unlink()  # the memory of the next program has this name; the old one is still open
        memory.file.write_bytes(another)
    assert memory.asks[:2] == (1, b"/tmp/script.py")
