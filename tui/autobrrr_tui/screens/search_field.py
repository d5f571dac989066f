"""The line in which the user types what a list is searched for; it has the keys while it is shown."""

from __future__ import annotations

from textual.widgets import Input


class SearchField(Input):
    """Hidden until it is opened; the screen hears of each change, and of Enter."""

    def __init__(self) -> None:
        super().__init__(placeholder="search", id="search", compact=True, select_on_focus=False)
        self.cursor_blink = False
        self.display = False

    def open(self, text: str) -> None:
        """Show it with what is searched now."""
        self.value, self.display = text, True
        self.cursor_position = len(text)
        self.screen.set_focus(self)  # at once: letters typed ahead are no keys that touch the job

    def close(self) -> None:
        """Hide it; keys are the screen's again."""
        self.display = False
        self.screen.set_focus(None)
