"""Where a view comes from and where its requests go: one protocol for live, past and made-up sessions.

`start` returns at once; views come on another thread. A request is answered with a sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from autobrrr.client.session_client import Client
from autobrrr_tui.view_state import View

Publish = Callable[[View], None]
Tell = Callable[[str], object]
Work = Callable[[Client], str | None]  # does one thing to a session; returns what became of it


class Source(Protocol):
    """One session, as screens see it."""

    def start(self, publish: Publish) -> None:
        """Begin to publish views, from a thread of its own."""

    def request(self, work: Work, tell: Tell, *, at_once: bool = False) -> None:
        """Do something to the job, on a thread of its own; `tell` gets what became of it, and a refusal.

        Args:
            at_once: Waits for no other request.
        """

    def close(self) -> None:
        """Leave. The session goes on."""
