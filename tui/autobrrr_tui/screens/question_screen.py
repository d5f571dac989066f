"""A question that is answered with y or n; anything but y leaves things as they are."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen

from autobrrr_tui.text_rows import BLANK, Page, Row, piece, row, wrapped
from autobrrr_tui.widgets.row_widget import Lines


class Ask(ModalScreen[bool]):
    """One question."""

    BINDINGS = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape,enter,q", "answer(False)", "no"),
    ]

    def __init__(self, question: str, yes: str) -> None:
        super().__init__()
        self._question, self._yes = question, yes

    def compose(self) -> ComposeResult:
        yield Lines(id="question")

    def on_mount(self) -> None:
        width = max(20, min(68, self.app.size.width - 6))
        rows: list[Row] = [row(piece(f" {line}", "strong")) for line in wrapped(self._question, width - 4)]
        rows += [
            BLANK,
            row(
                " ",
                piece("y", "key", "screen.answer(True)"),
                f" {self._yes}    ",
                piece("n", "key", "screen.answer(False)"),
                " leave it",
            ),
        ]
        box = self.query_one("#question", Lines)
        box.styles.width, box.styles.height = width, len(rows) + 2
        box.show(Page(rows=rows))

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)
