"""The sidecar's end of the agent link: numbered commands out, replies and events in.

Belongs to the event loop's thread. A command's reply comes to the function that was handed in
with it; events are returned by `read` in the order in which they came.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Protocol

from autobrrr.agent.protocol import BadFrame, Closed
from autobrrr.sidecar.wire import TooSlow, Wire

Fields = dict[str, object]
OnReply = Callable[[Fields], None]

LINK_LOST = "the link to the agent is lost"


class Agent(Protocol):
    """What a session needs of an agent."""

    def command(self, do: str, on_reply: OnReply, **fields: object) -> None:
        """Send one command; `on_reply` gets its reply, with `ok` false where the link is lost."""


class AgentLink:
    """An agent behind a connected socket."""

    def __init__(self, link: socket.socket) -> None:
        self.wire = Wire(link, takes_fds=True)
        self.lost = False
        self._number = 0
        self._waiting: dict[int, OnReply] = {}

    def command(self, do: str, on_reply: OnReply, **fields: object) -> None:
        if self.lost:
            on_reply(_refusal(LINK_LOST))
            return
        self._number += 1
        self._waiting[self._number] = on_reply
        try:
            self.wire.send({"do": do, "id": self._number, **fields})
        except (OSError, TooSlow, BadFrame):
            self.lose()

    def read(self) -> list[Fields]:
        """Events that came in; replies go to those who asked. Call when the socket is readable.

        The field `fd` of an event is an open descriptor, which the receiver closes.
        """
        try:
            messages = self.wire.read()
        except (BadFrame, Closed, OSError):
            self.lose()
            return []
        events = []
        for message in messages:
            if isinstance(message.get("event"), str):
                if message.get("fd") is True:  # a file comes with it
                    message["fd"] = self.wire.fds.popleft() if self.wire.fds else None
                events.append(message)
                continue
            number = message.get("reply")
            on_reply = self._waiting.pop(number, None) if isinstance(number, int) else None
            if on_reply is not None:
                on_reply(message)
        return events

    def flush(self) -> None:
        """Call when the socket is writable."""
        try:
            self.wire.flush()
        except OSError:
            self.lose()

    def lose(self) -> None:
        """End the link; the agent then takes everything off by itself. The loop closes the socket."""
        if self.lost:
            return
        self.lost = True
        self.wire.hang_up()
        waiting, self._waiting = self._waiting, {}
        for on_reply in waiting.values():
            on_reply(_refusal(LINK_LOST))


def _refusal(why: str) -> Fields:
    return {"ok": False, "why": why}
