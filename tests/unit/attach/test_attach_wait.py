"""What is said, and when it is given up, while the injected call has not run yet. A fake clock."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from autobrrr.attach import agent_wait
from autobrrr.errors import CannotAttach, TargetGone
from autobrrr.machine.same_program import Program
from support.machines.fake_proc import FakeProc

PID = 4242
TICKS_PER_S = 100
Words = dict[str, object]


class World:
    """A process whose figures are functions of the time since the injection."""

    def __init__(self, root: Path, at: Callable[[float], Words | None], arrives_s: float = 1e9) -> None:
        self._proc, self._at, self._arrives_s = FakeProc(root), at, arrives_s
        self.now_s = 0.0
        self.lines: list[str] = []
        self.went_beside_s: list[float] = []
        self.why_not_beside = "none of its threads waits"
        self.taken_s = 1e9
        self._words = at(0.0) or {}
        self._proc.add(PID, **self._words)  # type: ignore[arg-type]

    def arrived(self, timeout_s: float) -> bool:
        self.now_s += max(timeout_s, 0.25)  # a busy machine: few looks a second
        words = self._at(self.now_s)
        if words is None:
            (self._proc.root / str(PID) / "stat").unlink(missing_ok=True)
        elif words != self._words:
            self._words = words
            self._proc.add(PID, **words)  # type: ignore[arg-type]
        return self.now_s >= self._arrives_s

    def go_beside(self) -> str:
        self.went_beside_s.append(self.now_s)
        return self.why_not_beside

    def wait(self) -> None:
        agent_wait.for_agent(
            PID,
            self.arrived,
            lambda: self.now_s >= self.taken_s,
            program=Program(777, 4, os.geteuid(), 0),
            go_beside=self.go_beside,
            on_wait=self.lines.append,
            proc=self._proc.root,
            clock=lambda: self.now_s,
        )


def burning(seconds: float) -> Words:
    return {"cpu_ticks": int(seconds * TICKS_PER_S), "main_ticks": int(seconds * TICKS_PER_S)}


def asleep(call: str) -> Callable[[float], Words]:
    return lambda seconds: {"state": "S", "syscall": call}


def test_a_long_native_call_is_waited_for_with_a_line_a_second(tmp_path: Path) -> None:
    world = World(tmp_path, burning, arrives_s=12.0)
    world.wait()
    assert 9 <= len(world.lines) <= 11
    assert "its main thread runs (100 % of a core)" in world.lines[0]
    assert world.lines[0].startswith("waiting for process 4242, 2 s:")


def test_a_native_call_without_an_end_is_given_up_after_thirty_seconds(tmp_path: Path) -> None:
    world = World(tmp_path, burning)
    with pytest.raises(
        CannotAttach, match=r"did not admit the agent within 30 s.*has not come back to Python"
    ):
        world.wait()
    assert 30 <= world.now_s < 31


@pytest.mark.parametrize(
    ("call", "meaning"),
    [
        ("202 0x0", "for a lock, a thread or a queue .system call 202."),
        ("61 0x0", "for a child process .system call 61."),
        ("230 0x0", "in a sleep .system call 230."),
        ("999 0x0", "in system call 999"),
    ],
)
def test_a_sleep_without_progress_is_given_up_in_four_seconds(
    call: str, meaning: str, tmp_path: Path
) -> None:
    world = World(tmp_path, asleep(call))
    with pytest.raises(CannotAttach, match=f"waits {meaning}.*nothing in it makes progress"):
        world.wait()
    assert 2 < world.now_s <= 4


def test_a_main_thread_that_wakes_now_and_then_is_waited_for(tmp_path: Path) -> None:
    def polling(seconds: float) -> Words:
        return {"state": "S", "syscall": "7 0x0", "switches": int(seconds * 20)}

    world = World(tmp_path, polling, arrives_s=10)
    world.wait()
    assert "for a file or connection (system call 7)" in world.lines[-1]


def test_children_that_compile_are_waited_for(tmp_path: Path) -> None:
    world = World(tmp_path, asleep("61 0x0"), arrives_s=15)
    child = FakeProc(tmp_path)
    counted = itertools.count(100, 5)
    arrived = world.arrived

    def arrived_while_the_child_works(timeout_s: float) -> bool:
        child.add(5000, ppid=PID, cpu_ticks=next(counted))
        return arrived(timeout_s)

    world.arrived = arrived_while_the_child_works  # type: ignore[method-assign]
    world.wait()
    assert "for a child process" in world.lines[0]


def join(seconds: float) -> Words:
    return {"state": "S", "syscall": "202 0x0", "cpu_ticks": int(seconds * TICKS_PER_S), "main_ticks": 0}


def test_training_in_another_thread_is_gone_to_once_after_a_second(tmp_path: Path) -> None:
    world = World(tmp_path, join, arrives_s=20)
    world.why_not_beside = ""
    world.wait()
    assert len(world.went_beside_s) == 1
    assert 1 <= world.went_beside_s[0] < 2


@pytest.mark.parametrize("at", [burning, asleep("202 0x0")])
def test_nobody_goes_beside_a_main_thread_that_works_or_a_process_that_sleeps(
    at: Callable[[float], Words], tmp_path: Path
) -> None:
    world = World(tmp_path, at)
    with pytest.raises(CannotAttach):
        world.wait()
    assert world.went_beside_s == []


def test_training_in_another_thread_that_can_not_be_gone_to_is_told(tmp_path: Path) -> None:
    with pytest.raises(CannotAttach, match=r"its main thread waits .*none of its threads waits") as caught:
        World(tmp_path, join).wait()
    assert "in the main thread" in caught.value.hint


def test_a_target_that_became_another_program_meanwhile_is_gone(tmp_path: Path) -> None:
    world = World(tmp_path, lambda seconds: burning(seconds) if seconds < 1 else {"stack_start": 5})
    with pytest.raises(TargetGone, match="another program in its place"):
        world.wait()
    assert world.now_s < 2


def test_a_kernel_that_does_not_tell_where_the_stack_begins_tells_of_no_program(tmp_path: Path) -> None:
    world = World(tmp_path, lambda seconds: {**burning(seconds), "stack_start": 4 * (seconds < 1)})
    with pytest.raises(CannotAttach):
        world.wait()


@pytest.mark.parametrize("end", [None, {"state": "Z"}, {"start_ticks": 778}])
def test_a_target_that_ends_meanwhile_is_gone(end: Words | None, tmp_path: Path) -> None:
    world = World(tmp_path, lambda seconds: burning(seconds) if seconds < 1 else end)
    with pytest.raises(TargetGone, match="ended while it was being attached"):
        world.wait()
    assert world.now_s < 2


def test_a_job_that_is_stopped_meanwhile_is_told_so_at_once(tmp_path: Path) -> None:
    world = World(tmp_path, lambda seconds: {"state": "T"} if seconds > 0.5 else burning(seconds))
    with pytest.raises(CannotAttach, match=r"is stopped .job control.") as caught:
        world.wait()
    assert "kill -CONT" in caught.value.hint
    assert world.now_s < 1
