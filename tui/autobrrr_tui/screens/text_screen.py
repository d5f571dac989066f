"""A page to read over whatever stands below: help, or the details of a line and what its name means."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen

from autobrrr.records.wire_answers import Explained
from autobrrr_tui.text_rows import BLANK, LABEL, Page, Row, heading, piece, row, wrapped
from autobrrr_tui.widgets.row_widget import Lines

KEY_CELLS = 17


class TextScreen(ModalScreen[None]):
    """Closes on Escape, Enter, q or ?, which may open another page in its place.

    Args:
        lead: What stands above the paragraphs, for so many cells.
        turn: Opens the page that ? shows next.
    """

    BINDINGS = [
        Binding("escape,enter,q", "dismiss", "close", show=False),
        Binding("question_mark", "turn", show=False),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("down,j", "scroll(1)", show=False),
        Binding("pageup", "scroll(-10)", show=False),
        Binding("pagedown,space", "scroll(10)", show=False),
    ]

    def __init__(
        self,
        title: str,
        paragraphs: Sequence[tuple[str, str]] = (),
        lead: Callable[[int], list[Row]] | None = None,
        turn: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self._title, self._paragraphs, self._lead, self._turn = title, paragraphs, lead, turn

    def compose(self) -> ComposeResult:
        yield Lines(id="page")

    def on_mount(self) -> None:
        self._fill()

    def on_resize(self) -> None:
        self._fill()

    def action_scroll(self, by: int) -> None:
        self.query_one("#page", Lines).scroll_rows(by)

    def add(self, paragraphs: list[tuple[str, str]]) -> None:
        """More to read, below what stands there."""
        self._paragraphs = [*self._paragraphs, *paragraphs]
        if self.query("#page"):  # else it is about to be mounted
            self._fill()

    async def action_dismiss(self, result: None = None) -> None:
        self.dismiss(result)

    def action_turn(self) -> None:
        self.dismiss()
        if self._turn is not None:
            self._turn()

    def _fill(self) -> None:
        width = max(20, self.size.width - 8)
        closes = "Esc closes, down scrolls" + (", ? explains this page" if self._turn is not None else "")
        rows: list[Row] = [row(*heading(self._title), piece(f"   {closes}", "dim")), BLANK]
        if self._lead is not None:
            rows += [*(row("  ", *line) for line in self._lead(width - 2)), BLANK]
        names = LABEL if self._lead is not None else KEY_CELLS
        for name, text in self._paragraphs:
            lines = wrapped(text, width - names - 5)
            for i, line in enumerate(lines):
                rows.append(row(piece(f"  {name if i == 0 else '':<{names}} ", "key"), line))
        self.query_one("#page", Lines).show(Page(rows=rows))


def meaning_of(found: Explained | str, known: Set[str]) -> list[tuple[str, str]]:
    """The paragraphs of an explanation that are not known yet, or the sentence why there is none."""
    if isinstance(found, str):
        return [("", found)]
    guards = [("guards" if i == 0 else "", guard) for i, guard in enumerate(found.guards)]
    means = [] if found.meaning in known else [("means", found.meaning)]
    return [*means, ("from", found.source), *guards]
