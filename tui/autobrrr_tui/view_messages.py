"""The message from a source to its screen. A newer view replaces one that was not drawn yet."""

from __future__ import annotations

from textual.message import Message

from autobrrr_tui.view_state import View


class Updated(Message):
    """There is a new view."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, Updated)
