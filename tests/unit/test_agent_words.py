"""What an agent may say and send, bounded: frames, files, remedies, the first word, the log."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from autobrrr.agent.wire import framing
from autobrrr.attach import enter
from support.sessions.session import Stage
from support.sessions.sidecar import facts


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("odd", [{"pid": -1}, {"argv": "x"}])
def test_facts_that_can_t_be_are_refused(
    odd: dict[str, object], pair: tuple[socket.socket, socket.socket]
) -> None:
    hello = framing.encode({"event": "hello", "facts": {**facts(), **odd}})
    socket.send_fds(pair[1], [hello], [0])
    with pytest.raises(framing.BadFrame, match="facts: Expected"):
        enter.hello_from(pair[0])


def test_a_session_whose_figures_nothing_can_be_made_of_ends_with_a_sentence(tmp_path: Path) -> None:
    stage = Stage(tmp_path).enter()
    stage.run(20)
    stage.session.fail(OverflowError("too large\x1b"))
    assert stage.session.ending.kind == "failed"
    assert stage.session.ending.why == r"the session failed: OverflowError: too large\x1b"
