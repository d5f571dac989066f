"""One client of a session: its connection, what it subscribed to, and answers on their way to it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from autobrrr.agent.wire.framing import BadFrame
from autobrrr.errors import AutobrrrError
from autobrrr.records import Record
from autobrrr.sidecar.sockets.socket_frames import TooSlow, Wire

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
    """Where the answer to one request goes, and the request itself."""

    client: ClientConnection
    number: int | None
    asked: Fields

    def done(self, **fields: object) -> None:
        self.client.send({"ok": True, "id": self.number, **fields})

    def fail(self, error: AutobrrrError) -> None:
        self.client.send({**failure(error), "id": self.number})


def as_fields(record: Record) -> Fields:
    """A record as the object of a frame."""
    fields: Fields = msgspec.to_builtins(record)
    return fields


def failure(error: AutobrrrError) -> Fields:
    """An error as it travels to a client."""
    told = {"message": error.message, "hint": error.hint, "exit_code": error.exit_code}
    return {"ok": False, "error": told}
