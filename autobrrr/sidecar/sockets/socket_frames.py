"""Frames on sockets that never block: what came in so far, and what still has to go out.

The event loop calls `Wire.read` and `Wire.flush`; both ends of the sidecar (the agent and every client) speak
through one. `AgentLink` is the door for what an agent says: it lives in somebody's process, so every text
in a message is made readable here. All belong to the event loop's thread.
"""

from __future__ import annotations

import os
import socket
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NewType

import msgspec

from autobrrr.agent.remedies.registry import RefusalCode
from autobrrr.agent.wire.framing import MAX_FRAME_BYTES, BadFrame, Closed, decode, encode
from autobrrr.errors import AutobrrrError
from autobrrr.readable import fields, spoken

MAX_WAITING_BYTES = 4 * MAX_FRAME_BYTES  # more than this unread: the other side is given up
MOST_FILE_BYTES = 256 << 20  # as the agent has it, of one file
_LENGTH = struct.Struct(">I")
_READ_BYTES = 1 << 16
_FDS = 4  # at most, with one read


class TooSlow(Exception):
    """The other side does not read what it is sent."""


class Wire:
    """One connected socket, made non-blocking.

    Args:
        link: The socket; the wire closes it.
        takes_fds: Keep descriptors that come in, in `fds`, for whoever reads the frames; else the kernel
            closes them.
    """

    def __init__(self, link: socket.socket, *, takes_fds: bool = False) -> None:
        link.setblocking(False)
        self.link = link
        self.fds: deque[int] = deque()
        self._most_fds = _FDS if takes_fds else 0
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
        try:
            raw, fds, _, _ = socket.recv_fds(self.link, _READ_BYTES, self._most_fds)
        except (BlockingIOError, InterruptedError):
            return []
        self.fds.extend(fds)
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
        if len(self._outgoing) + len(frame) > MAX_WAITING_BYTES:
            raise TooSlow(f"{len(self._outgoing)} bytes wait to be read")
        self._outgoing += frame
        self.flush()

    def flush(self) -> None:
        """Send what the socket takes now. Raises OSError."""
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
        self.link.close()
        while self.fds:
            os.close(self.fds.popleft())


Fields = dict[str, object]


@dataclass(eq=False, slots=True)
class ClientConnection:
    """One connected client."""

    wire: Wire
    every_ns: int | None = None  # subscribed, and how often
    pushed_ns: int = 0
    owner: bool = False  # the session goes on for this client
    leaving: bool = False  # close once everything is sent
    gone: bool = False

    def send(self, message: Fields) -> None:
        """Queue a message; a client that can't take it is gone."""
        if self.gone:
            return
        try:
            self.wire.send(message)
        except (OSError, TooSlow):
            self.gone = True
        except BadFrame as error:
            number = {"id": message["id"]} if "id" in message else {}
            self.send({**failure(AutobrrrError(f"the answer can't be sent: {error}")), **number})


@dataclass(frozen=True, slots=True)
class Reply:
    """Where the answer to one request goes."""

    client: ClientConnection
    number: int | None

    def done(self, answer: object = None) -> None:
        self.client.send({"ok": True, "id": self.number, "answer": msgspec.to_builtins(answer)})

    def fail(self, error: AutobrrrError) -> None:
        self.client.send({**failure(error), "id": self.number})


def failure(error: AutobrrrError) -> Fields:
    """An error as it travels to a client."""
    told = {"message": error.message, "hint": error.hint, "exit_code": error.exit_code}
    return {"ok": False, "error": told}


Heard = NewType("Heard", dict[str, object])  # of a message, every text in it readable
OnReply = Callable[[Heard], None]

LINK_LOST = "the link to the agent is lost"


class AgentLink:
    """An agent behind a connected socket.

    Attributes:
        why: Why the link is lost, once it is.
    """

    def __init__(self, link: socket.socket) -> None:
        self.wire = Wire(link, takes_fds=True)
        self.lost = False
        self.why = LINK_LOST
        self._number = 0
        self._waiting: dict[int, OnReply] = {}

    def command(self, do: str, on_reply: OnReply, **fields: object) -> None:
        """Send one command; `on_reply` gets its reply, with `ok` false where the link is lost."""
        if self.lost:
            on_reply(_link_lost())
            return
        self._number += 1
        self._waiting[self._number] = on_reply
        try:
            self.wire.send({"do": do, "id": self._number, **fields})
        except BadFrame as error:  # nothing was sent: it costs who asked for it, not the link
            del self._waiting[self._number]
            on_reply(Heard({"ok": False, "why": f"the agent can't be told this: {spoken(str(error))}"}))
        except (OSError, TooSlow):
            self.lose()

    def read(self) -> list[Heard]:
        """Events that came in; replies go to those who asked. Call when the socket is readable.

        The field `fd` of an event is an open descriptor, which the receiver closes.
        """
        try:
            messages = self.wire.read()
        except BadFrame as error:
            self.lose(f"the agent's message can't be read: {spoken(str(error))}")
            return []
        except (Closed, OSError):
            self.lose()
            return []
        events = []
        for raw in messages:
            message = Heard(fields(raw, spoken))
            if isinstance(message.get("event"), str):
                comes = message.get("fd") is True  # its number is the kernel's to say
                message["fd"] = self.wire.fds.popleft() if comes and self.wire.fds else None
                events.append(message)
                continue
            number = message.get("reply")
            on_reply = self._waiting.pop(number, None) if isinstance(number, int) else None
            if on_reply is not None:
                on_reply(message)
        return events

    def flush(self) -> None:
        """What the socket did not take at once goes out, as far as it takes more."""
        try:
            self.wire.flush()
        except OSError:
            self.lose()

    def lose(self, why: str = LINK_LOST) -> None:
        """End the link; the agent then takes everything off by itself. The loop closes the socket."""
        if self.lost:
            return
        self.lost, self.why = True, why
        self.wire.hang_up()
        waiting, self._waiting = self._waiting, {}
        for on_reply in waiting.values():
            on_reply(_link_lost())


def content(fd: int) -> bytes | str:
    """What a file holds that came out of the job, or why it is not read; the file is closed."""
    try:
        size = os.fstat(fd).st_size
        return os.pread(fd, size, 0) if size <= MOST_FILE_BYTES else f"it came with {size} bytes"
    finally:
        os.close(fd)


def said(message: Heard, name: str, otherwise: str = "no reason given") -> str:
    """A sentence in a message; what is no text says nothing."""
    found = message.get(name)
    return found if isinstance(found, str) and found else otherwise


def _link_lost() -> Heard:
    return Heard({"ok": False, "why": LINK_LOST, "code": RefusalCode.LINK_LOST.value})
