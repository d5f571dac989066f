"""Wires put frames together from any pieces, and give up on those who do not read."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.agent.wire.framing import BadFrame, Closed, encode, receive
from autobrrr.sidecar.sockets import socket_frames
from autobrrr.sidecar.sockets.socket_frames import AgentLink, TooSlow, Wire
from support.sessions.sidecar import raw_frame


def pair() -> tuple[Wire, socket.socket]:
    ours, theirs = socket.socketpair()
    return Wire(ours), theirs


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12))
def test_frames_arrive_however_the_bytes_are_cut(cuts: list[int]) -> None:
    wire, _ = pair()
    messages = [{"do": "ping", "id": number} for number in range(5)]
    raw = b"".join(encode(message) for message in messages)
    found: list[dict[str, object]] = []
    at = 0
    for cut in [*cuts, len(raw)]:
        found += wire.feed(raw[at : at + cut])
        at += cut
    assert found == [{"v": 1, **message} for message in messages]


@pytest.mark.parametrize("body", [b"{{{", b"[]", b"{}", b'{"v":2}', b"\xff"])
def test_a_frame_that_is_none_is_refused(body: bytes) -> None:
    wire, _ = pair()
    with pytest.raises(BadFrame):
        wire.feed(raw_frame(body))


def test_an_end_between_frames_is_orderly_and_inside_one_it_is_not() -> None:
    wire, theirs = pair()
    theirs.close()
    with pytest.raises(Closed):
        wire.read()
    wire, theirs = pair()
    theirs.sendall(encode({"do": "ping"})[:-1])
    assert wire.read() == []
    theirs.close()
    with pytest.raises(BadFrame, match="inside a frame"):
        wire.read()


def test_what_the_socket_does_not_take_waits_and_goes_out_later() -> None:
    wire, theirs = pair()
    sent = 0
    while not wire.waiting_bytes:
        wire.send({"text": "x" * 50_000})
        sent += 1
    got = 0
    while got < sent:
        message = receive(theirs)
        assert message["text"] == "x" * 50_000
        got += 1
        wire.flush()
    assert wire.waiting_bytes == 0


def test_a_side_that_does_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_frames, "MAX_WAITING_BYTES", 100_000)
    wire, _theirs = pair()
    while wire.waiting_bytes < 50_000:
        wire.send({"text": "x" * 50_000})
    with pytest.raises(TooSlow):
        wire.send({"text": "x" * 100_000})


def test_replies_go_to_those_who_asked_and_events_to_the_reader() -> None:
    ours, theirs = socket.socketpair()
    link = AgentLink(ours)
    replies: list[dict[str, object]] = []
    link.command("trace", replies.append, steps=6)
    assert receive(theirs) == {"v": 1, "do": "trace", "id": 1, "steps": 6}
    theirs.sendall(
        encode({"event": "progress"}) + encode({"reply": 1, "ok": True}) + encode({"reply": 9, "ok": True})
    )
    assert [event["event"] for event in link.read()] == ["progress"]
    assert [reply["ok"] for reply in replies] == [True]


def test_with_the_link_lost_every_waiting_command_is_refused() -> None:
    ours, theirs = socket.socketpair()
    link = AgentLink(ours)
    replies: list[dict[str, object]] = []
    link.command("probe", replies.append)
    theirs.close()
    assert link.read() == []
    assert link.lost
    link.command("detach", replies.append)
    assert [reply["ok"] for reply in replies] == [False, False]


def test_an_agent_that_talks_nonsense_loses_its_link() -> None:
    ours, theirs = socket.socketpair()
    link = AgentLink(ours)
    theirs.sendall(b"\0\0\0\2[]")
    assert link.read() == []
    assert link.lost
    assert theirs.recv(1) == b""
