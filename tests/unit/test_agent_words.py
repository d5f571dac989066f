"""What an agent may say and send, bounded: frames, files, remedies, the first word, the log."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from autobrrr.agent.wire import framing
from autobrrr.attach import enter
from autobrrr.records import ProfilerWindow
from autobrrr.sidecar.session import session_log
from autobrrr.sidecar.session.window_reader import WindowReader
from autobrrr.sidecar.sockets import agent_link
from autobrrr.sidecar.sockets.agent_link import AgentLink
from support.sessions.session import Stage
from support.sessions.sidecar import facts

TOLD = ProfilerWindow(status="ok")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_what_an_agent_said_long_ago_is_forgotten_and_a_flood_is_not(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    now_s = [0.0]
    link = AgentLink(pair[0], clock_s=lambda: now_s[0])
    frame = framing.encode({"event": "awaits", "why": "A" * 60_000})
    for _ in range(600):  # 36 MB in ten minutes
        pair[1].sendall(frame)
        now_s[0] += 1
        link.read()
    assert not link.lost
    for _ in range(agent_link.BURST_BYTES // 60_000 + 2):
        if link.lost:
            break
        pair[1].sendall(frame)
        while link.read() == [] and not link.lost:
            pass
    assert link.lost
    assert link.why == "the agent said more than 16 MiB at once; it was cut off"


def test_windows_are_read_one_at_a_time(tmp_path: Path) -> None:
    goes_on, done = threading.Event(), threading.Event()

    def call(function: object) -> None:
        goes_on.wait(20)
        done.set()

    before, reader = set(threading.enumerate()), WindowReader(call)
    null = [os.open(os.devnull, os.O_RDONLY) for _ in range(50)]
    for fd in null:
        reader(TOLD, fd, lambda window: None)
    begun = [each for each in set(threading.enumerate()) - before if each.name == "window"]
    assert len(begun) == 1
    goes_on.set()
    assert done.wait(20)
    for fd in null:
        with pytest.raises(OSError):
            os.fstat(fd)


def test_a_log_has_a_last_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_log, "MOST_BYTES", 1000)
    log = session_log.SessionLog(tmp_path / "1.jsonl")
    for _ in range(100):
        log.write("note", {"text": "x" * 100})
    log.close()
    assert log.path.stat().st_size <= 1000
    assert log.lost_lines > 90


@pytest.mark.parametrize(
    "odd",
    [{"pid": -1}, {"argv": "x"}],
)
def test_facts_that_can_t_be_are_refused(
    odd: dict[str, object], pair: tuple[socket.socket, socket.socket]
) -> None:
    hello = framing.encode({"event": "hello", "token": "x", "facts": {**facts(), **odd}})
    socket.send_fds(pair[1], [hello], [0])
    with pytest.raises(framing.BadFrame, match="facts: Expected"):
        enter.hello_from(pair[0])


def test_a_session_whose_figures_nothing_can_be_made_of_ends_with_a_sentence(tmp_path: Path) -> None:
    stage = Stage(tmp_path).enter()
    stage.run(20)
    stage.session.fail(OverflowError("too large\x1b"))
    assert stage.session.ending is not None
    assert stage.session.ending.kind == "failed"
    assert stage.session.ending.why == r"the session failed: OverflowError: too large\x1b"
