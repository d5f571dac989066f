"""Messages from sources to screens. A newer view replaces one that was not drawn yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message import Message

from autobrrr.records import JobLine
from autobrrr_tui.view_state import View

if TYPE_CHECKING:
    from autobrrr_tui.screens.text_screen import TextScreen


class Updated(Message):
    """There is a new view."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, Updated)


class Told(Message):
    """A request has been answered."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class Meaning(Message):
    """What a word means, in paragraphs for the page that asked."""

    def __init__(self, page: TextScreen, said: list[tuple[str, str]]) -> None:
        super().__init__()
        self.page, self.said = page, said


class Listed(Message):
    """The jobs of this machine, each with its view where it has a session; how many were not looked at."""

    def __init__(self, jobs: list[JobLine], views: dict[int, View], unseen: int = 0) -> None:
        super().__init__()
        self.jobs, self.views, self.unseen = jobs, views, unseen

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, Listed)
