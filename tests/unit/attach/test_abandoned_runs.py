"""What killed runs leave in the runtime folder goes with the next run or attach, and nothing else does."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from autobrrr.attach.preload import preloaded_agent
from support.machines.fake_proc import FakeProc


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    return tmp_path / "run"


def killed(runtime: Path) -> Path:
    """A run whose supervisor is gone: its lock is, its folder is not."""
    prepared = preloaded_agent.prepare(None, {}, runtime)
    (prepared.folder / "source").write_bytes(b"agent")
    os.close(prepared.held.pop())
    return prepared.folder


def test_the_folder_of_a_killed_run_is_taken_away(runtime: Path, tmp_path: Path) -> None:
    folder = killed(runtime)
    (folder / "__pycache__").mkdir()
    swept = preloaded_agent.sweep(runtime, FakeProc(tmp_path).root)
    assert swept == [folder.name]
    assert list(runtime.iterdir()) == []


def test_a_run_that_is_supervised_keeps_its_folder(runtime: Path, tmp_path: Path) -> None:
    prepared = preloaded_agent.prepare(None, {}, runtime)
    assert preloaded_agent.sweep(runtime, FakeProc(tmp_path).root) == []
    assert (prepared.folder / "boot.json").exists()
    prepared.remove()
    prepared.remove()
    assert not prepared.folder.exists()


def test_what_has_another_name_or_is_no_folder_stays(runtime: Path, tmp_path: Path) -> None:
    killed(runtime)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (runtime / f"run-{'b' * 16}").symlink_to(elsewhere)
    (runtime / "run-mine").mkdir()
    (runtime / f"run-{'c' * 16}").touch()
    assert len(preloaded_agent.sweep(runtime, FakeProc(tmp_path).root)) == 1
    assert (elsewhere / "kept").exists()
    assert sorted(path.name for path in runtime.iterdir()) == [
        f"run-{'b' * 16}",
        f"run-{'c' * 16}",
        "run-mine",
    ]


@pytest.fixture
def listening(runtime: Path) -> Iterator[socket.socket]:
    preloaded_agent.prepare(None, {}, runtime).remove()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(runtime / "agent-7-70.sock"))
        server.listen(1)
        yield server


def test_the_socket_of_a_dead_agent_goes(runtime: Path, tmp_path: Path, listening: socket.socket) -> None:
    proc = FakeProc(tmp_path).root
    assert preloaded_agent.sweep(runtime, proc) == [], "somebody answers there, if in another container"
    listening.close()
    assert preloaded_agent.sweep(runtime, proc) == ["agent-7-70.sock"]
    assert list(runtime.iterdir()) == []
