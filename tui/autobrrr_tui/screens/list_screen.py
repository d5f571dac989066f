"""What all screens of lists share: their rows, the search and sort of a list, the table of keys.

The line of keys at the bottom and the line of modes at the top can be clicked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Input

from autobrrr.report.page_model import Line, PageTable
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
from autobrrr.report.text_rows import EDGES, Page, Piece, Row, boxed, clipped, piece
from autobrrr_tui.panes.tuning_pane import RemedyRow
from autobrrr_tui.view_state import ScreenStanding, View
from autobrrr_tui.widgets.row_widget import Lines

MODES = ("glance", "steps", "diagnosis", "tuning", "gaps", "recipe", "log")
SHORT = ("glance", "steps", "diag", "tune", "gaps", "recipe", "log")


class ScreenKey(NamedTuple):
    """A key as it is written, what it does in a word and in a sentence, what it costs the job."""

    key: str
    action: str
    word: str
    means: str
    cost: str = ""


KEYS = tuple(
    ScreenKey(*each)
    for each in (
        ("space", "pause", "pause", "pause the tuner after this pair; again: continue"),
        ("t", "tune", "tune", "tune: try the matching remedies on the running job, keep what is proven; "
         "steps take longer while a slower one is tried"),
        ("a", "apply", "apply", "apply the remedy chosen in mode 3"),
        ("u", "undo", "undo", "undo: revert the remedy chosen in mode 3, or the last"),
        ("e", "export", "export", "export: write the applied remedies as a recipe"),
        ("w", "window", "profile", "profile a few steps under torch; they take longer", "slows some steps"),
        ("p", "probe", "measure", "measure again, with the batch probe: short pauses", "short pauses"),
        ("d", "detach", "detach", "detach: revert all, end the session; the job runs on", "reverts all"),
        ("Enter", "enter", "details", "details of what is chosen; y copies its name"),
        ("/", "search", "search", "search the list; Esc shows all again"),
        ("s", "sort", "sort", "sort the list by its next column"),
        ("?", "help", "help", "the keys, and the words of this page"),
        ("q", "quit", "quit", "quit this screen; the session continues"),
    )
)  # fmt: skip
TOUCHING = ("pause", "tune", "detach", "window", "probe", "apply", "undo")
SPARE = ("probe", "window", "export", "sort", "search", "enter", "apply")  # left out in this order
HELP = (
    Line(name="0 to 6, Esc", text=f"modes: {', '.join(MODES)}"),
    *(Line(name=key.key, text=key.means) for key in KEYS if key.action != "help"),
    Line(name="up, down", text="choose, scroll"),
    Line(name="Ctrl-P", text="all commands by name"),
)


def modes_line(mode: str, width: int) -> Row:
    """`autobrrr  0 Glance  1 Steps ...`; the one that is shown is set off, also without colours."""
    pieces: list[Piece] = []
    names = dict(zip(MODES, MODES if width >= 70 else SHORT, strict=True))
    wide = width >= 80
    if wide:
        pieces.append(piece(" autobrrr ", "strong"))
    for number, name in enumerate(MODES):
        shown = names[name].capitalize()
        text = f"[{number} {shown}]" if name == mode else f" {number} {shown} "
        text = text if wide or name == mode else text[:-1]
        pieces.append(piece(text, "here" if name == mode else "", f"screen.mode('{name}')"))
    return tuple(pieces)


def why_not(view: View, line: RemedyRow | None, action: str) -> str:
    """Why a key that touches the job does nothing now; empty where it does something.

    Args:
        line: The remedy that is chosen, where remedies are listed.
    """
    if view.readonly:
        return f"read-only: {action} would touch the job"
    if view.standing is ScreenStanding.RECORDED:
        return f"this is a recorded session: there is no job to {action}"
    if not view.acting:
        return (
            f"the session is not there: {view.why}"
            if view.standing is not ScreenStanding.OPENING
            else "not attached yet"
        )
    if action == "pause" and not view.tuning:
        return "nothing is being tuned; t starts it"
    if action == "undo" and not view.active:
        return "no remedy is on"
    if action == "apply" and line is None:
        return "choose a remedy with up and down, then a"
    if action == "apply" and line is not None and line.token is not None:
        return f"{line.key} is already on; u reverts it"
    if action == "apply" and line is not None and line.turn == 2:
        return f"{line.key} can't be applied now ({line.remedy.reach}): autobrrr run --recipe FILE"
    return ""


def able(view: View, line: RemedyRow | None) -> frozenset[str]:
    """The keys that would do something to the job now, and export; while a tuner works its own alone."""
    acts = ("pause", "tune", "detach") if view.tuning else TOUCHING
    found = {action for action in acts if not why_not(view, line, action)}
    return frozenset(found | ({"export"} if view.details.recipe is not None else set()))


def keys_line(width: int, can: frozenset[str], words: Mapping[str, str]) -> Row:
    """Keys that do something now, with what they cost the job; with little room that goes first,
    then the keys that can be missed.

    Args:
        can: Their actions; help and quit are always there.
        words: By action: what a key does now where that is not its usual word.
    """
    keys = [key for key in KEYS if key.action in can | {"help", "quit"}]
    for left_out, costs in (("", True), *((name, False) for name in ("", *SPARE))):
        keys = [key for key in keys if key.action != left_out]
        pieces: list[Piece] = []
        for key in keys:
            action = f"screen.{key.action}"
            pieces += [piece(f" {key.key} ", "key", action)]
            pieces += [piece(f"{words.get(key.action, key.word)} ", "", action)]
            pieces += [piece(f"({key.cost}) ", "muted")] if key.cost and costs else []
        if sum(len(text) for text, _, _ in pieces) <= width:
            break
    return tuple(pieces)


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
