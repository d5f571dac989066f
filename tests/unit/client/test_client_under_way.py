"""A session that another command is just starting is waited for, and then ended."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from autobrrr.cli import main
from autobrrr.client import session_client
from autobrrr.errors import AutobrrrError, TargetGone
from autobrrr.sidecar.process.session_options import SessionOptions
from autobrrr.sidecar.sockets.session_socket import SessionSocket, find_target, is_under_way


@pytest.fixture(autouse=True)
def _places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def test_a_lock_that_is_held_shows_and_is_not_touched() -> None:
    me = find_target(os.getpid())
    assert not is_under_way(me)
    endpoint = SessionSocket(me)
    assert is_under_way(me)
    assert is_under_way(me)
    endpoint.close()
    assert not is_under_way(me)


def test_detach_waits_until_the_session_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint, said = SessionSocket(find_target(os.getpid())), []
    joined: list[socket.socket] = []

    class Joined:
        def __init__(self, link: socket.socket, *, started: bool) -> None:
            joined.append(link)

    def sleep(seconds: float) -> None:
        endpoint.listen()  # meanwhile it has come up

    monkeypatch.setattr(session_client, "Client", Joined)
    monkeypatch.setattr(session_client.time, "sleep", sleep)
    try:
        assert isinstance(session_client.join_under_way(os.getpid(), on_wait=said.append), Joined)
    finally:
        endpoint.close()
        for link in joined:
            link.close()
    assert said == [f"another command is attaching to process {os.getpid()}: waiting for it"]


def _closed_meanwhile(endpoint: SessionSocket, monkeypatch: pytest.MonkeyPatch) -> None:
    closes = iter((endpoint.close,))
    monkeypatch.setattr(session_client.time, "sleep", lambda seconds: next(closes, lambda: None)())


def test_where_nobody_attaches_there_is_no_session(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["detach", str(os.getpid())]) == 1
    assert "has no session" in capsys.readouterr().err


def test_where_the_attach_that_was_waited_for_was_killed_nothing_is_left_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _closed_meanwhile(SessionSocket(find_target(os.getpid())), monkeypatch)
    assert main(["detach", str(os.getpid())]) == 0
    assert "has ended without a session" in capsys.readouterr().err


@pytest.mark.parametrize("answers", [True, False], ids=["socket still there", "socket gone"])
def test_the_command_whose_session_was_ended_does_not_start_another(
    monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    links: list[socket.socket] = []
    starts: list[int] = []

    def ended(link: socket.socket, *, started: bool = False) -> session_client.Client:
        link.close()
        raise TargetGone("the session is over")

    def connect(target: object) -> socket.socket | None:
        if not starts or not answers:
            return None
        links.append(socket.socket(socket.AF_UNIX))
        return links[-1]

    monkeypatch.setattr(session_client, "connect", connect)
    monkeypatch.setattr(session_client, "Client", ended)
    monkeypatch.setattr(session_client, "start", lambda *_, **__: starts.append(1) or True)
    with pytest.raises(AutobrrrError, match="another command detached it") as caught:
        session_client.open_session(os.getpid(), SessionOptions())
    assert caught.value.exit_code == 1
    assert starts == [1]
