"""The other end of a client's connection."""

from __future__ import annotations

import socket

import msgspec

from autobrrr.agent.wire.framing import encode, receive
from support.judged.verdicts import OVERHEAD

FACTS = {
    "version": "0",
    "pid": 42,
    "state": "judged",
    "activity": "watching",
    "readonly": False,
    "outside": False,
    "probing": "on",
}


class Session:
    """The other end: what it will say is put in beforehand."""

    def __init__(self) -> None:
        self.theirs, self.link = socket.socketpair()
        self.number = 0
        self.answer(**FACTS)

    def answer(self, ok: bool = True, **fields: object) -> Session:
        self.number += 1
        return self.say({"ok": ok, "id": self.number, **fields})

    def say(self, message: dict[str, object]) -> Session:
        self.link.sendall(encode(message))
        return self

    def snapshot(self, name: str = "snapshot", **more: object) -> Session:
        return self.say({"event": name, "snapshot": msgspec.to_builtins(OVERHEAD), **more})

    def asked(self) -> dict[str, object]:
        return receive(self.link)
