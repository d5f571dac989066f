"""The agent speaks with its own user and root alone, and clears away what brought it."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autobrrr.agent.wire import agent_socket

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
