"""A socket is asked whether it can be read, whatever its number."""

from __future__ import annotations

import socket

from autobrrr.machine.file_readiness import is_readable


def test_what_has_come_and_what_was_closed_can_be_read() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert not is_readable(one, 0.01)
        other.sendall(b"x")
        assert is_readable(one, None)
        assert one.recv(1) == b"x"
        other.close()
        assert is_readable(one)
