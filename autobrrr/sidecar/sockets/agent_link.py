"""The sidecar's end of the agent link: numbered commands out, replies and events in.

The door for what an agent says: it lives in somebody's process, which may say anything, and as often as it
likes. Every text in a message is made readable here, and an agent that says too much loses the link.
Belongs to the event loop's thread. A command's reply comes to the function that was handed in
with it; events are returned by `read` in the order in which they came.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import NewType, Protocol

from autobrrr.agent.remedies.registry import RefusalCode
from autobrrr.agent.wire.framing import BadFrame, Closed
from autobrrr.readable import fields, spoken
from autobrrr.sidecar.sockets.socket_frames import TooSlow, Wire

Heard = NewType("Heard", dict[str, object])  # of a message, every text in it readable
OnReply = Callable[[Heard], None]

LINK_LOST = "the link to the agent is lost"
WITH_FILE = ("window", "recorded")
BURST_BYTES, STEADY_BYTES_PER_S = 16 << 20, 1 << 20  # an agent says some kilobytes a second


class AgentPort(Protocol):
    """What a session needs of an agent."""

    def command(self, do: str, on_reply: OnReply, **fields: object) -> None:
        """Send one command; `on_reply` gets its reply, with `ok` false where the link is lost."""


class AgentLink:
    """An agent behind a connected socket.

    Attributes:
        why: Why the link is lost, once it is.
    """

    def __init__(self, link: socket.socket, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.wire = Wire(link, takes_fds=True)
        self.lost = False
        self.why = LINK_LOST
        self._clock_s = clock_s
        self._heard_s, self._heard_bytes = clock_s(), 0.0
        self._number = 0
        self._waiting: dict[int, OnReply] = {}

    def command(self, do: str, on_reply: OnReply, **fields: object) -> None:
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
        if self._too_much():
            self.lose(f"the agent said more than {BURST_BYTES >> 20} MiB at once; it was cut off")
            return []
        events = []
        for raw in messages:
            message = Heard(fields(raw, spoken))
            if isinstance(message.get("event"), str):
                # A file comes with these alone, and its number is the kernel's to say, not the agent's.
                comes = message.get("event") in WITH_FILE and message.pop("fd", None) is True
                message["fd"] = self.wire.fds.popleft() if comes and self.wire.fds else None
                events.append(message)
                continue
            number = message.get("reply")
            on_reply = self._waiting.pop(number, None) if isinstance(number, int) else None
            if on_reply is not None:
                on_reply(message)
        return events

    def _too_much(self) -> bool:
        """What has been said is forgotten at a steady rate; more than a burst is too much."""
        now_s = self._clock_s()
        forgotten = (now_s - self._heard_s) * STEADY_BYTES_PER_S
        self._heard_bytes = max(0.0, self._heard_bytes - forgotten) + self.wire.taken_bytes
        self._heard_s = now_s
        return self._heard_bytes > BURST_BYTES

    def flush(self) -> None:
        """Call when the socket is writable."""
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


def said(message: Heard, name: str, otherwise: str = "no reason given") -> str:
    """A sentence in a message; what is no text says nothing."""
    found = message.get(name)
    return found if isinstance(found, str) and found else otherwise


def _link_lost() -> Heard:
    return Heard({"ok": False, "why": LINK_LOST, "code": RefusalCode.LINK_LOST.value})
