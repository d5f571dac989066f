"""A socket is asked whether it can be read or written, whatever its number."""

from __future__ import annotations

import os
import resource
import socket

import pytest

from autobrrr.machine.file_readiness import is_readable, readiness


def test_what_has_come_and_what_was_closed_can_be_read() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert readiness(one, 0.0, writes=True) == (False, True)
        assert readiness(one, 0.01) == (False, False)
        other.sendall(b"x")
        assert is_readable(one, None)
        assert one.recv(1) == b"x"
        other.close()
        assert is_readable(one)


def test_a_file_whose_number_is_high_is_asked_too() -> None:
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed <= 2000:
        pytest.skip("so many files may not be open here")
    reading, writing = os.pipe()
    os.dup2(reading, 2000)
    try:
        with open(2000, "rb", closefd=False) as high:
            assert not is_readable(high)
            os.write(writing, b"x")
            assert is_readable(high)
    finally:
        for number in (reading, writing, 2000):
            os.close(number)
