"""What all screens of lists share: their rows, the search and sort of a list, the keys that move in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Input

from autobrrr.report.page_model import PageTable
from autobrrr.report.page_text import (
    UNCHANGED,
    ListChoice,
    ScreenPart,
    chosen_table,
    detail_cells,
    details,
    facts,
    page_rows,
    sorting,
)
from autobrrr.report.text_rows import EDGES, Page, Row, boxed, clipped
from autobrrr_tui.screens.key_bar import KEYS
from autobrrr_tui.widgets.row_widget import Lines

BOUND = {"Enter": "enter", "/": "slash", "?": "question_mark"}  # as textual calls them


class ListScreen(Screen[None]):
    """Lines above and below a list, with details beside it; each mode has a list of its own."""

    BINDINGS = [
        *(Binding(BOUND.get(key.key, key.key), key.action, key.word) for key in KEYS),
        Binding("escape", "back", show=False),
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "scroll(-10)", show=False),
        Binding("pagedown", "scroll(10)", show=False),
        Binding("home", "scroll(-100000)", show=False),
        Binding("end", "scroll(100000)", show=False),
    ]
    AUTO_FOCUS = ""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode = mode
        self._choices: dict[str, ListChoice] = {}  # of each mode
        self._parts: Sequence[ScreenPart] = []  # of the page that is shown

    def compose(self) -> ComposeResult:
        yield Lines(id="modes")
        yield Lines(id="head")
        yield Horizontal(Lines(id="body"), Lines(id="detail"), id="list")
        yield Lines(id="below")
        yield SearchField()
        yield Lines(id="note")
        yield Lines(id="keys")

    def draw(self) -> None:
        """Rows for every part; the widgets draw what differs."""
        raise NotImplementedError

    @property
    def table(self) -> PageTable | None:
        """The list of this mode, where it has one."""
        return chosen_table(self._parts)

    def on_resize(self) -> None:
        self.draw()

    def on_lines_picked(self) -> None:
        self.draw()

    def on_input_changed(self, message: Input.Changed) -> None:
        if self._search.display:
            self._choose(replace(self._choice, search=message.value))

    def on_input_submitted(self) -> None:
        self._search.close()
        self.draw()

    def action_move(self, by: int) -> None:
        self._body.move(by)
        self.draw()

    def action_scroll(self, by: int) -> None:
        self._body.scroll_rows(by)

    def action_search(self) -> None:
        if self.table is not None:
            self._search.open(self._choice.search)
            self.draw()

    def action_sort(self) -> None:
        if self._sorts:
            self._choose(replace(self._choice, sort=(self._choice.sort + 1) % (self._sorts + 1)))

    def action_back(self) -> None:
        """Out of the search first."""
        if self._search.display or self._choice.search:
            self._search.close()
            self._choose(replace(self._choice, search=""))
        else:
            self.leave()

    def action_quit(self) -> None:
        self.app.exit()

    def leave(self) -> None:
        """Esc where nothing is searched."""
        self.app.exit()

    @property
    def _body(self) -> Lines:
        return self.query_one("#body", Lines)

    @property
    def _search(self) -> SearchField:
        return self.query_one(SearchField)

    @property
    def _sorts(self) -> int:
        return 0 if self.table is None else len(sorting(self.table))

    @property
    def _choice(self) -> ListChoice:
        return self._choices.get(self.mode, UNCHANGED)

    def _list(self, parts: Sequence[ScreenPart], width: int, room: int) -> bool:
        """The page of the mode; on a wide screen, which is told, the details of what is chosen beside it."""
        self._parts = parts
        beside = 0 if self.table is None else detail_cells(width)
        page = page_rows(parts, width - beside - bool(beside), self._choice)
        if not page.picks:
            page, beside = page_rows(parts, width, self._choice), 0
        detail = self.query_one("#detail", Lines)
        detail.styles.width = beside
        self._body.show(page)
        if beside and self._body.picked is not None:
            known = facts(details(parts, self._body.picked), beside - EDGES)
            detail.show(Page(rows=boxed(clipped(self._body.picked, beside - 8), known, beside, room)))
        return bool(beside)

    def _choose(self, choice: ListChoice) -> None:
        """Another search or sort of this mode's list."""
        self._choices[self.mode] = choice
        self.draw()
        self._body.reveal()

    def _show(self, name: str, rows: Sequence[Row], height: int | None = None) -> None:
        lines = self.query_one(f"#{name}", Lines)
        if height is not None and (lines.styles.height is None or lines.styles.height.value != height):
            lines.styles.height = height
        lines.show(Page(rows=list(rows)))

    def _note_or_search(self, note: Row) -> bool:
        """The line of notes gives way to the search; whether it has."""
        searching = self._search.display
        self.query_one("#note").display = not searching
        self._show("note", [note])
        return searching


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
