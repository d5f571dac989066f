"""What the job and a process that it has forked for us say to each other: messages of bytes, each as a whole.

The job offers its own, which never waits, and says how long it waits for an answer; the process sends. No
write ends either because nobody listens: a job may have set SIGPIPE, which Python ignores, to its default.
"""

from __future__ import annotations

import select
import socket
import struct
import time

UNHEARD = socket.MSG_NOSIGNAL  # with each write of ours to a socket: it fails where nobody listens
_LENGTH = struct.Struct("@Q")


class ProcessLink:
    """One end."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        end.settimeout(None)  # a job may have set another one for all of its sockets

    def fileno(self) -> int:
        """Of the file that it is."""
        return self._end.fileno()

    def close(self) -> None:
        """May be called twice."""
        self._end.close()

    def offer(self, message: bytes) -> bool:
        """Send it without waiting; False: there is no room for it.

        Raises:
            OSError: nobody listens, or there is room for a part of it only, which is sent.
        """
        whole = _LENGTH.pack(len(message)) + message
        try:
            sent = self._end.send(whole, UNHEARD | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        if sent < len(whole):
            raise OSError(f"{sent} of {len(whole)} bytes are sent")
        return True

    def send(self, message: bytes) -> None:
        """Send it, and wait for room; raises OSError where nobody listens."""
        self._end.sendall(_LENGTH.pack(len(message)) + message, UNHEARD)

    def is_ready(self, within_s: float) -> bool:
        """Whether something of a message is there, or nobody who could send one."""
        look = select.poll()  # one for each thread that asks
        look.register(self._end.fileno(), select.POLLIN)
        return bool(look.poll(1000 * within_s))

    def receive(self, within_s: float) -> bytes:
        """The next message.

        Raises:
            TimeoutError: it is not there in time, or only a part of it.
            EOFError, OSError: nobody is there who could send it.
        """
        until_s = time.monotonic() + within_s
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size, until_s))
        return self._exactly(length, until_s)

    def _exactly(self, count: int, until_s: float) -> bytes:
        found, at = bytearray(count), 0
        while at < count:
            if not self.is_ready(max(0.0, until_s - time.monotonic())):
                raise TimeoutError(f"{at} of {count} bytes came in time")
            size = self._end.recv_into(memoryview(found)[at:])
            if not size:
                raise EOFError
            at += size
        return bytes(found)


def pair() -> tuple[ProcessLink, ProcessLink]:
    """Both ends; raises OSError."""
    one, other = socket.socketpair()
    return ProcessLink(one), ProcessLink(other)
