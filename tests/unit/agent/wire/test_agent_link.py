"""The agent speaks with its own user and root alone, and clears away what brought it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from autobrrr.agent import entry
from autobrrr.agent.wire import agent_socket
from autobrrr.attach import target_folder
from autobrrr.attach.ptrace import injector
from autobrrr.folders import is_held

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed to speak with")
AS_OTHER = "import os, socket, sys\nos.setgroups([]); os.setgid(23456); os.setuid(23456)\n"


@pytest.fixture
def public() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        os.chmod(made, 0o777)
        yield Path(made)


def played(code: str, path: Path) -> subprocess.Popen[str]:
    """A process of another user."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", AS_OTHER + code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    process.stdout.readline()
    return process


@needs_root
def test_a_sidecar_of_another_user_is_not_spoken_to(public: Path) -> None:
    planted = played(
        "door = socket.socket(socket.AF_UNIX); door.bind(sys.argv[1]); door.listen(1)\n"
        "print(flush=True); sys.stdin.read()",
        public / "door",
    )
    with pytest.raises(PermissionError, match="another user listens"):
        agent_socket.connect(str(public / "door"))
    planted.communicate()


def test_a_process_that_has_become_another_program_listens_again(tmp_path: Path) -> None:
    for _ in range(2):
        agent_socket.listen(str(tmp_path / "door")).close()
    assert (tmp_path / "door").is_socket()


@needs_root
def test_a_client_of_another_user_is_not_let_in(public: Path) -> None:
    server = agent_socket.listen(str(public / "door"))
    os.chmod(public / "door", 0o666)
    stranger = played(
        "link = socket.socket(socket.AF_UNIX); link.connect(sys.argv[1])\n"
        "print(flush=True); sys.stdin.read()",
        public / "door",
    )
    assert agent_socket.accept(server) is None
    stranger.communicate()
    server.close()


def test_our_own_is_let_in_and_spoken_to(tmp_path: Path) -> None:
    server = agent_socket.listen(str(tmp_path / "door"))
    there = agent_socket.connect(str(tmp_path / "door"))
    here = agent_socket.accept(server)
    assert here is not None
    for each in (server, there, here):
        each.close()


def brought(folder: Path) -> Path:
    folder.mkdir(mode=0o700)
    for name in entry.BROUGHT:
        if name in (injector.TAKEN, injector.FAILED):
            (folder / name).symlink_to(folder.parent)
        else:
            (folder / name).write_text("")
    return folder


def fail_to_come_up(folder: Path) -> None:
    """Run the agent on a thread of its own, since it blocks that thread's signals; nobody listens."""
    boot: dict[str, object] = {"link": str(folder / "link.sock"), "torch": sys, "mapped": None}
    with ThreadPoolExecutor(1) as threads, pytest.raises(entry.NotUp):
        threads.submit(entry.start, boot).result()


def test_an_agent_whose_sidecar_was_killed_takes_its_folder_away(tmp_path: Path) -> None:
    folder = brought(tmp_path / "autobrrr-0-abc")
    fail_to_come_up(folder)
    assert not folder.exists()
    assert tmp_path.exists()


def test_an_agent_that_could_not_come_up_leaves_the_folder_to_a_sidecar_that_lives(tmp_path: Path) -> None:
    folder = brought(tmp_path / "place")
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    assert not is_held(held)
    fail_to_come_up(folder)
    assert sorted(os.listdir(folder)) == sorted(entry.BROUGHT)
    os.close(held)


def test_all_that_an_injection_brings_is_known_to_the_agent() -> None:
    brings = {
        target_folder.SOCKET,
        injector.TAKEN,
        injector.FAILED,
        "boot.json",
        "code",
        "source",
    }
    assert set(entry.BROUGHT) == brings


def test_only_what_was_brought_is_taken_away(tmp_path: Path) -> None:
    folder = brought(tmp_path / "place")
    (folder / "thesis.tex").write_text("precious")
    entry.clear(str(folder))
    assert os.listdir(folder) == ["thesis.tex"]
    real = brought(tmp_path / "real")
    (tmp_path / "link").symlink_to(real)
    entry.clear(str(tmp_path / "link"))
    assert sorted(os.listdir(real)) == sorted(entry.BROUGHT)
    entry.clear(str(tmp_path / "none"))
