"""Frames: what is sent arrives; anything else is refused with its reason."""

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.agent.wire import framing

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
