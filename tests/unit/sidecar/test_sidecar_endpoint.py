"""One session a job, in a private folder, for the job's user and ours alone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autobrrr import folders, paths
from autobrrr.errors import AutobrrrError, TargetGone
from autobrrr.folders import peer_uid
from autobrrr.sidecar.sockets.session_socket import (
    AlreadyServed,
    SessionSocket,
    SessionTarget,
    connect,
    find_target,
    is_alive,
    passed_over,
    served,
    sweep,
)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"XDG_RUNTIME_DIR": str(tmp_path)}


@pytest.fixture
def me() -> SessionTarget:
    return find_target(os.getpid())


def test_a_process_is_known_by_pid_and_start(me: SessionTarget) -> None:
    assert is_alive(me)
    assert not is_alive(SessionTarget(pid=me.pid, start_ticks=me.start_ticks + 1))
    assert me.name == f"{me.pid}-{me.start_ticks}.sock"


def test_a_pid_that_is_not_there_is_gone() -> None:
    with pytest.raises(TargetGone, match="no process 4194304"):
        find_target(4194304)


def test_clients_find_the_session_and_each_knows_the_other(me: SessionTarget, env: dict[str, str]) -> None:
    assert connect(me, env) is None
    endpoint = SessionSocket(me, env)
    listener = endpoint.listen()
    assert connect(me, {"XDG_RUNTIME_DIR": "/no/such"}) is None
    link = connect(me, env)
    client = endpoint.accept()
    assert peer_uid(client) == peer_uid(link) == os.getuid()
    assert endpoint.accept() is None
    link.close()
    client.close()
    endpoint.close()
    assert listener.fileno() == -1
    assert connect(me, env) is None
    assert os.listdir(paths.runtime_dir(env)) == []


def test_a_second_session_of_the_same_job_is_refused_until_the_first_has_gone(
    me: SessionTarget, env: dict[str, str]
) -> None:
    first = SessionSocket(me, env)
    with pytest.raises(AlreadyServed):
        SessionSocket(me, env)
    first.close()
    SessionSocket(me, env).close()


def test_the_socket_of_a_dead_session_is_replaced(me: SessionTarget, env: dict[str, str]) -> None:
    folder = paths.runtime_dir(env)
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(folder / me.name))
    dead.close()
    assert connect(me, env) is None
    endpoint = SessionSocket(me, env)
    endpoint.listen()
    link = connect(me, env)
    link.close()
    endpoint.close()


def test_a_folder_that_is_open_to_others_is_refused(me: SessionTarget, env: dict[str, str]) -> None:
    paths.runtime_dirs(env)[0].mkdir(mode=0o755)
    with pytest.raises(AutobrrrError, match="open to other users"):
        SessionSocket(me, env)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root plays other users")
MALLORY = 23456


@pytest.fixture
def tmp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A /tmp of the test's own, where everybody may make folders."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        os.chmod(made, 0o1777)
        monkeypatch.setattr(paths, "TMP", Path(made))
        yield Path(made)


@contextmanager
def played_by(uid: int, folder: Path, name: str, mode: int) -> Iterator[None]:
    """A process of another user that listens for clients of a session, and answers them."""
    code = (
        "import os, socket, sys\n"
        "os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1])); os.umask(0)\n"
        "os.makedirs(sys.argv[2], int(sys.argv[4], 8), exist_ok=True)\n"
        "door = socket.socket(socket.AF_UNIX); door.bind(sys.argv[2] + '/' + sys.argv[3]); door.listen(9)\n"
        "print(flush=True); sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code, str(uid), str(folder), name, oct(mode)[2:]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        process.stdout.readline()
        yield
    finally:
        process.communicate()


@needs_root
@pytest.mark.parametrize("mode", [0o700, 0o777])
def test_a_socket_that_somebody_else_planted_is_no_session(
    mode: int, tmp: Path, monkeypatch: pytest.MonkeyPatch, me: SessionTarget
) -> None:
    target = me
    monkeypatch.setattr(paths, "home_of", lambda owner: tmp / f"home-{owner}")
    planted = tmp / "autobrrr-0"
    with played_by(MALLORY, planted, target.name, mode):
        assert connect(target, {}) is None
        assert served({}) == []
        (said,) = passed_over({})
        assert said.startswith(f"{planted} belongs to uid {MALLORY}, ")
        # Nobody is kept out by it: the session lies elsewhere, and is found there.
        (tmp / "home-0").mkdir(mode=0o700)
        endpoint = SessionSocket(target, {})
        endpoint.listen()
        link = connect(target, {})
        assert peer_uid(link) == os.geteuid()
        link.close()
        endpoint.close()
        assert os.listdir(planted) == [target.name]


@needs_root
def test_a_client_of_another_user_is_not_let_in(tmp: Path, env: dict[str, str], me: SessionTarget) -> None:
    endpoint = SessionSocket(me, env)
    endpoint.listen()
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        os.chmod(made, 0o755)
        door = Path(made) / "door"  # the way in that no other user has
        os.link(paths.runtime_dir(env) / me.name, door)
        os.chmod(door, 0o666)
        code = (
            "import os, socket, sys\nos.setgroups([]); os.setgid(23456); os.setuid(23456)\n"
            "link = socket.socket(socket.AF_UNIX); link.connect(sys.argv[1]); print(flush=True)\n"
            "print(link.recv(1))\n"
        )
        stranger = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", code, str(door)], stdout=subprocess.PIPE, text=True
        )
        stranger.stdout.readline()
        assert endpoint.accept() is None
        assert stranger.communicate(timeout=20)[0] == "b''\n"
    endpoint.close()


def test_what_is_gone_is_swept_and_nothing_else(me: SessionTarget, env: dict[str, str]) -> None:
    folder = paths.runtime_dir(env)
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(folder / "4194304-7.sock"))
    for name in ("4194304-7.sock.lock", "ranks-ab12.lock", "notes.txt", "4194304-8.sock", "a-b.sock"):
        (folder / name).write_text("")
    held = folders.lock(folder / f"{me.name}.lock")
    assert held is not None
    assert sorted(sweep(folder)) == ["4194304-7.sock.lock", "ranks-ab12.lock"]
    assert sorted(os.listdir(folder)) == sorted(
        ["notes.txt", "4194304-8.sock", "a-b.sock", f"{me.name}.lock"]
    )
    os.close(held)
    assert sweep(folder) == [f"{me.name}.lock"]  # its job is there, its session was killed
