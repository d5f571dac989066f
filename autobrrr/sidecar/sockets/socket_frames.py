"""Frames on sockets that never block: what came in so far, and what still has to go out.

The event loop calls `Wire.read` and `Wire.flush` when the socket is ready; both ends of the
sidecar (the agent and every client) speak through one.
"""

from __future__ import annotations

import array
import os
import socket
import struct
from collections import deque

from autobrrr.agent.wire.framing import MAX_FRAME_BYTES, BadFrame, Closed, decode, encode

MAX_WAITING_BYTES = 4 * MAX_FRAME_BYTES
_LENGTH = struct.Struct(">I")
_READ_BYTES = 1 << 16
_FDS = 4
_MOST_SENT = 253  # descriptors with one message, of the kernel


class TooSlow(Exception):
    """The other side does not read what it is sent."""


class Wire:
    """One connected socket, made non-blocking.

    Args:
        link: The socket; the wire closes it.
        max_waiting_bytes: More than this waiting to go out raises `TooSlow`.
        takes_fds: Keep descriptors that come in, in `fds`, for whoever reads the frames.
    """

    def __init__(
        self, link: socket.socket, max_waiting_bytes: int = MAX_WAITING_BYTES, *, takes_fds: bool = False
    ) -> None:
        link.setblocking(False)
        self.link = link
        self.fds: deque[int] = deque()
        self._most_fds = _FDS if takes_fds else 0
        self.taken_bytes = 0  # at the last read
        self._max_waiting_bytes = max_waiting_bytes
        self._incoming = bytearray()
        self._outgoing = bytearray()

    def fileno(self) -> int:
        return self.link.fileno()

    @property
    def waiting_bytes(self) -> int:
        """What the other side has not taken yet."""
        return len(self._outgoing)

    def feed(self, raw: bytes) -> list[dict[str, object]]:
        """The frames that are complete with these bytes.

        Raises:
            BadFrame: what came in is no frame; the messages before it in the same bytes are lost.
        """
        self._incoming += raw
        messages: list[dict[str, object]] = []
        while len(self._incoming) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._incoming)
            if length > MAX_FRAME_BYTES:
                raise BadFrame(f"frame of {length} bytes; at most {MAX_FRAME_BYTES}")
            end = _LENGTH.size + length
            if len(self._incoming) < end:
                break
            body = bytes(self._incoming[_LENGTH.size : end])
            del self._incoming[:end]
            messages.append(decode(body))
        return messages

    def read(self) -> list[dict[str, object]]:
        """The frames that have come in; call when the socket is readable.

        Raises:
            BadFrame: no frame, or cut by the end of the stream.
            Closed: end of stream between two frames.
            OSError: the socket failed.
        """
        self.taken_bytes = 0
        try:
            # What finds no room the kernel closes here and now, and a socket may linger for hours.
            raw, control, _, _ = self.link.recvmsg(_READ_BYTES, socket.CMSG_SPACE(_MOST_SENT * 4))
        except (BlockingIOError, InterruptedError):
            return []
        self._take_fds(control)
        self.taken_bytes = len(raw)
        if not raw:
            if self._incoming:
                raise BadFrame(f"stream ended inside a frame, after {len(self._incoming)} bytes")
            raise Closed
        return self.feed(raw)

    def send(self, message: dict[str, object]) -> None:
        """Queue one message and send what the socket takes now.

        Raises:
            TooSlow: too much is waiting already.
            BadFrame: the message is larger than a frame may be.
            OSError: the socket failed.
        """
        frame = encode(message)
        if len(self._outgoing) + len(frame) > self._max_waiting_bytes:
            raise TooSlow(f"{len(self._outgoing)} bytes wait to be read")
        self._outgoing += frame
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes now; call when it is writable. Raises OSError."""
        while self._outgoing:
            try:
                sent = self.link.send(self._outgoing)
            except (BlockingIOError, InterruptedError):
                return
            del self._outgoing[:sent]

    def hang_up(self) -> None:
        """Both sides see the end of the stream; the descriptor stays until `close`."""
        try:
            self.link.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        self.hang_up()
        if (link := self.link.detach()) >= 0:  # what came and was not read is closed with it
            os.close(link)
        while self.fds:
            os.close(self.fds.popleft())

    def _take_fds(self, control: list[tuple[int, int, bytes]]) -> None:
        """Nobody may fill our file table: descriptors that nobody wants, or too many, are closed."""
        for level, kind, payload in control:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
                for fd in fds:
                    if len(self.fds) < self._most_fds:
                        os.set_inheritable(fd, False)
                        self.fds.append(fd)
                    else:
                        os.close(fd)
