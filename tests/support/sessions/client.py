"""The other end of a client's connection."""

from __future__ import annotations

import socket
from typing import Any

import msgspec

from autobrrr.agent.wire.framing import encode, receive
from autobrrr.records.session_requests import Request
from support.judged.verdicts import OVERHEAD

FACTS = {"pid": 42, "readonly": False, "outside": False, "probing": "on"}


class PlayedClient:
    """A client whose requests are answered by methods of the test, under the names on the wire."""

    def ask(self, request: Request[Any]) -> Any:
        name = str(type(request).__struct_config__.tag)
        return getattr(self, name)(**msgspec.structs.asdict(request))

    closed = False

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()


class Session:
    """The other end: what it will say is put in beforehand."""

    def __init__(self) -> None:
        self.theirs, self.link = socket.socketpair()
        self.number = 0
        self.answer(FACTS)

    def answer(self, answer: object = None) -> Session:
        self.number += 1
        return self.say({"ok": True, "id": self.number, "answer": msgspec.to_builtins(answer)})

    def say(self, message: dict[str, object]) -> Session:
        self.link.sendall(encode(message))
        return self

    def tell(self, event: str, body: object) -> Session:
        return self.say({"event": event, "body": msgspec.to_builtins(body)})

    def snapshot(self) -> Session:
        return self.tell("snapshot", OVERHEAD)

    def end(self, kind: str, why: str) -> Session:
        """The last snapshot, and the ending."""
        return self.snapshot().tell("ended", {"kind": kind, "why": why, "decided": True})

    def asked(self) -> dict[str, object]:
        return receive(self.link)
