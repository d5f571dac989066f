"""A profiler window or a recorded step, as the test that plays the sidecar gets it: event and file."""

import socket
from typing import Any

from autobrrr.agent.wire import framing
from autobrrr.records import ProfilerWindow
from autobrrr.records.record_base import as_record
from support.agent.agent import Peer


def next_window(peer: Peer) -> tuple[ProfilerWindow, int | None]:
    """The event `window` with its file."""
    event, fd = _next(peer, "window")
    return as_record(event["window"], ProfilerWindow), fd


def next_with_file(peer: Peer, name: str) -> tuple[dict[str, Any], int | None]:
    """What the next event of this name says, with its file."""
    event, fd = _next(peer, name)
    return event[name], fd


def _next(peer: Peer, name: str) -> tuple[dict[str, Any], int | None]:
    """Frames are small enough to come whole."""
    while True:
        for event in peer.events:
            if event.get("event") == name:
                return event, None
        raw, fds, _, _ = socket.recv_fds(peer.link, 1 << 16, 4)
        while len(raw) < 4 or len(raw) < 4 + int.from_bytes(raw[:4], "big"):
            raw += peer.link.recv(1 << 16)
        while raw:
            length = 4 + int.from_bytes(raw[:4], "big")
            event = framing.decode(raw[4:length])
            raw = raw[length:]
            if event.get("event") == name:
                return event, fds[0] if fds else None
            peer.events.append(event)
