"""Where a view comes from and where its requests go: one protocol for live, past and made-up sessions.

`start` returns at once; views come on another thread. A request is answered with a sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from autobrrr_tui.view_state import View

Publish = Callable[[View], None]
Tell = Callable[[str], object]


class Do(Enum):
    """What a screen may request of a session."""

    TUNE = "tune"
    CANCEL = "cancel"
    APPLY = "apply"
    UNDO = "undo"
    PAUSE = "pause"
    RESUME = "resume"
    PROBE = "probe"
    WINDOW = "window"
    DETACH = "detach"


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewRequest:
    """One thing to do."""

    do: Do
    remedy: str = ""
    options: dict[str, object] = field(default_factory=dict)
    token: int = 0


class Source(Protocol):
    """One session, as screens see it."""

    def start(self, publish: Publish) -> None:
        """Begin to publish views, from a thread of its own."""

    def request(self, request: ViewRequest, tell: Tell) -> None:
        """Do something to the job, on a thread of its own; `tell` gets one sentence, also for a refusal."""

    def close(self) -> None:
        """Leave. The session goes on."""
