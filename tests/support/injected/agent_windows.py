"""A profiler window as the test that plays the sidecar gets it: the event and its file."""

from __future__ import annotations

import socket

from autobrrr.injected.wire import framing
from autobrrr.records import ProfilerWindow
from autobrrr.sidecar.session.window_reader import told_window
from support.injected.agent import Peer


def next_window(peer: Peer) -> tuple[ProfilerWindow, int | None]:
    """The event `window` with its file; frames are small enough to come whole."""
    while True:
        for event in peer.events:
            if event.get("event") == "window":
                return told_window(event), None
        raw, fds, _, _ = socket.recv_fds(peer.link, 1 << 16, 4)
        while len(raw) < 4 or len(raw) < 4 + int.from_bytes(raw[:4], "big"):
            raw += peer.link.recv(1 << 16)
        while raw:
            length = 4 + int.from_bytes(raw[:4], "big")
            event = framing.decode(raw[4:length])
            raw = raw[length:]
            if event.get("event") == "window":
                return told_window(event), fds[0] if fds else None
            peer.events.append(event)
