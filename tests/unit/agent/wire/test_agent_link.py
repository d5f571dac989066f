"""Frames arrive as they were sent; the agent speaks with its user and root alone, and clears away."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.agent.wire import agent_socket, framing

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=8).filter(lambda key: key != "v"), json_values, max_size=5))
def test_what_is_sent_arrives(message: dict[str, object]) -> None:
    left, right = socket.socketpair()
    with left, right:
        framing.send(left, message)
        assert framing.receive(right) == {"v": framing.VERSION, **message}


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"\0\0", "ended after 2 of 4"),
        (struct.pack(">I", 10) + b"abc", "ended after 3 of 10"),
        (struct.pack(">I", framing.MAX_FRAME_BYTES + 1), "at most"),
        (struct.pack(">I", 3) + b"{{{", "no JSON"),
        (struct.pack(">I", 2) + b"\xff\xfe", "no JSON"),
        (struct.pack(">I", 2) + b"[]", "not an object"),
        (struct.pack(">I", 2) + b"{}", "protocol version None"),
        (struct.pack(">I", 7) + b'{"v":9}', "protocol version 9"),
        (struct.pack(">I", 9000) + b"[" * 9000, "no JSON"),
    ],
)
def test_a_bad_frame_says_why(raw: bytes, reason: str) -> None:
    left, right = socket.socketpair()
    with right:
        left.sendall(raw)
        left.close()
        with pytest.raises(framing.BadFrame, match=reason):
            framing.receive(right)


@given(st.binary(max_size=200))
def test_no_bytes_at_all_make_it_raise_anything_else(raw: bytes) -> None:
    left, right = socket.socketpair()
    with right:
        left.sendall(raw)
        left.close()
        try:
            message = framing.receive(right)
        except (framing.BadFrame, framing.Closed):
            return
        assert message["v"] == framing.VERSION


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
