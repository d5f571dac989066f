"""One session a job, in a private folder, for the job's user and ours alone."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from autobrrr import paths
from autobrrr.errors import AutobrrrError, TargetGone
from autobrrr.sidecar.endpoint import (
    AlreadyServed,
    Endpoint,
    Target,
    connect,
    find_target,
    folders,
    is_alive,
    peer_uid,
    runtime_of,
    sweep,
)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"XDG_RUNTIME_DIR": str(tmp_path)}


@pytest.fixture
def me() -> Target:
    return find_target(os.getpid())


def test_a_process_is_known_by_pid_and_start(me: Target) -> None:
    assert (me.pid, me.uid) == (os.getpid(), os.geteuid())
    assert is_alive(me)
    assert not is_alive(Target(pid=me.pid, start_ticks=me.start_ticks + 1, uid=me.uid))
    assert me.name == f"{me.pid}-{me.start_ticks}.sock"


def test_a_pid_that_is_not_there_is_gone() -> None:
    with pytest.raises(TargetGone, match="no process 4194304"):
        find_target(4194304)


def test_clients_find_the_session_and_each_side_knows_the_other(me: Target, env: dict[str, str]) -> None:
    assert connect(me, env) is None
    endpoint = Endpoint(me, env)
    listener = endpoint.listen()
    assert connect(me, {"XDG_RUNTIME_DIR": "/no/such"}) is None
    link = connect(me, env)
    assert link is not None
    seat = endpoint.accept()
    assert seat is not None
    assert peer_uid(seat) == peer_uid(link) == os.getuid()
    assert endpoint.accept() is None
    link.close()
    seat.close()
    endpoint.close()
    assert listener.fileno() == -1
    assert connect(me, env) is None
    assert os.listdir(paths.runtime_dir(env)) == []


def test_socket_and_folder_are_for_their_user_alone(me: Target, env: dict[str, str]) -> None:
    endpoint = Endpoint(me, env)
    endpoint.listen()
    folder = paths.runtime_dir(env)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    endpoint.close()


def test_a_second_session_of_the_same_job_is_refused_until_the_first_has_gone(
    me: Target, env: dict[str, str]
) -> None:
    first = Endpoint(me, env)
    with pytest.raises(AlreadyServed):
        Endpoint(me, env)
    first.close()
    Endpoint(me, env).close()


def test_the_socket_of_a_dead_session_is_replaced(me: Target, env: dict[str, str]) -> None:
    folder = paths.make_private(paths.runtime_dir(env))
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(folder / me.name))
    dead.close()
    assert connect(me, env) is None
    endpoint = Endpoint(me, env)
    endpoint.listen()
    link = connect(me, env)
    assert link is not None
    link.close()
    endpoint.close()


def test_a_path_that_no_address_holds_is_no_hindrance(me: Target, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    env = {"XDG_RUNTIME_DIR": str(deep)}
    endpoint = Endpoint(me, env)
    endpoint.listen()
    link = connect(me, env)
    assert link is not None
    link.close()
    endpoint.close()


def test_a_folder_that_is_open_to_others_is_refused(me: Target, env: dict[str, str]) -> None:
    paths.runtime_dir(env).mkdir(mode=0o755)
    with pytest.raises(AutobrrrError, match="open to other users"):
        Endpoint(me, env)


def test_a_link_in_place_of_the_folder_is_refused(me: Target, env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    paths.runtime_dir(env).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AutobrrrError, match="not a folder"):
        Endpoint(me, env)
    assert connect(me, env) is None


def test_sessions_of_another_user_s_job_lie_with_that_user(env: dict[str, str]) -> None:
    other = Target(pid=1, start_ticks=1, uid=54321)
    assert runtime_of(54321, env) == Path("/tmp/autobrrr-54321")
    assert folders(other, env) == [Path("/tmp/autobrrr-54321"), paths.runtime_dir(env)]
    assert folders(Target(pid=1, start_ticks=1, uid=os.getuid()), env) == [paths.runtime_dir(env)]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can attach to another user's job")
def test_for_another_user_s_job_root_hands_the_folder_and_socket_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autobrrr.sidecar.endpoint.runtime_of", lambda uid, env: tmp_path / "autobrrr")
    target = Target(pid=os.getpid(), start_ticks=1, uid=54321)
    endpoint = Endpoint(target, {})
    endpoint.listen()
    owners = {path.name: path.stat().st_uid for path in (tmp_path / "autobrrr").iterdir()}
    assert owners[target.name] == 54321
    assert (tmp_path / "autobrrr").stat().st_uid == 54321
    link = connect(target, {})
    assert link is not None
    assert endpoint.accept() is not None
    link.close()
    endpoint.close()


def test_what_dead_jobs_left_is_swept_and_nothing_else(me: Target, env: dict[str, str]) -> None:
    folder = paths.make_private(paths.runtime_dir(env))
    gone = socket.socket(socket.AF_UNIX)
    gone.bind(str(folder / "4194304-7.sock"))
    gone.close()
    for name in ("4194304-7.sock.lock", "notes.txt", "4194304-8.sock", "a-b.sock", f"{me.name}.lock"):
        (folder / name).write_text("")
    assert sorted(sweep(folder)) == ["4194304-7.sock", "4194304-7.sock.lock"]
    assert sorted(os.listdir(folder)) == sorted(
        ["notes.txt", "4194304-8.sock", "a-b.sock", f"{me.name}.lock"]
    )
    assert sweep(folder / "none") == []
