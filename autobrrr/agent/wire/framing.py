"""Frames on a Unix socket: a 4-byte big-endian length, then one UTF-8 JSON object.

Used between sidecar and agent, and between clients and sidecar. A frame that is cut, too large,
not an object or of another version raises `BadFrame`; the receiver answers and closes, and
nothing else happens. Standard library only: this file runs inside the training process too.
"""

from __future__ import annotations

import json
import socket
import struct

VERSION = 1
MAX_FRAME_BYTES = 1 << 20
# A write to a closed socket must fail with an error: the job may have restored the default of SIGPIPE,
# which kills.
UNHEARD = socket.MSG_NOSIGNAL
_LENGTH = struct.Struct(">I")


class BadFrame(Exception):
    """What came in is no frame of this protocol."""


class Closed(Exception):
    """The other side is gone (an orderly end of stream, between two frames)."""


def encode(message: dict[str, object]) -> bytes:
    """One frame; adds the protocol version.

    Raises:
        BadFrame: larger than `MAX_FRAME_BYTES`, or nothing that JSON can say.
    """
    try:
        body = json.dumps({"v": VERSION, **message}, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadFrame(f"no JSON: {error}") from None
    if len(body) > MAX_FRAME_BYTES:
        raise BadFrame(f"frame of {len(body)} bytes; at most {MAX_FRAME_BYTES}")
    return _LENGTH.pack(len(body)) + body


def decode(body: bytes) -> dict[str, object]:
    """The object in one frame's body.

    Raises:
        BadFrame: no UTF-8 JSON object, or of another version.
    """
    try:
        message = json.loads(body.decode())  # bytes would be taken in other encodings too
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"no JSON: {error}") from None
    if not isinstance(message, dict):
        raise BadFrame(f"a JSON {type(message).__name__}, not an object")
    if message.get("v") != VERSION:
        version = message.get("v")
        told = version if isinstance(version, int | None) else f"of type {type(version).__name__}"
        raise BadFrame(f"protocol version {told}; this side speaks {VERSION}")
    return message


def send(link: socket.socket, message: dict[str, object]) -> None:
    """Send one frame; raises OSError where the other side is gone."""
    link.sendall(encode(message), UNHEARD)


def receive(link: socket.socket, begun: bytes = b"") -> dict[str, object]:
    """Block until one frame is there.

    Args:
        begun: What has been read of its first four bytes.

    Raises:
        Closed: end of stream between two frames.
        BadFrame: cut, oversized, no object, other version.
        OSError: the socket failed, or its timeout passed.
    """
    (length,) = _LENGTH.unpack(_exactly(link, _LENGTH.size, begun, at_boundary=True))
    if length > MAX_FRAME_BYTES:
        raise BadFrame(f"frame of {length} bytes; at most {MAX_FRAME_BYTES}")
    return decode(_exactly(link, length, at_boundary=False))


def _exactly(link: socket.socket, count: int, begun: bytes = b"", *, at_boundary: bool) -> bytes:
    parts = bytearray(begun)
    while len(parts) < count:
        part = link.recv(count - len(parts))
        if not part:
            if at_boundary and not parts:
                raise Closed
            raise BadFrame(f"stream ended after {len(parts)} of {count} bytes")
        parts += part
    return bytes(parts)
