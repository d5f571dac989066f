"""What stands over a screen: a page to read (help, details, what words mean), a question to answer.

What words mean is looked up in the glossary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from typing import get_args

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen

from autobrrr.records.record_base import Limit, Regime
from autobrrr.report.page_model import Line
from autobrrr.report.page_text import facts
from autobrrr.report.pages.diagnosis_parts import glossary
from autobrrr.report.text_rows import BLANK, Page, Row, heading, piece, plain, row, wrapped
from autobrrr_tui.view_state import View
from autobrrr_tui.widgets.row_widget import Lines


class TextScreen(ModalScreen[None]):
    """Closes on Escape, Enter, q or ?, which may open another page in its place.

    Args:
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

    def __init__(self, title: str, lines: Sequence[Line], turn: Callable[[], None] | None = None) -> None:
        super().__init__()
        self._title, self._lines, self._turn = title, lines, turn

    def compose(self) -> ComposeResult:
        yield Lines(id="page")

    def on_mount(self) -> None:
        self._fill()

    def on_resize(self) -> None:
        self._fill()

    def action_scroll(self, by: int) -> None:
        self.query_one("#page", Lines).scroll_rows(by)

    async def action_dismiss(self, result: None = None) -> None:
        self.dismiss(result)

    def action_turn(self) -> None:
        self.dismiss()
        if self._turn is not None:
            self._turn()

    def _fill(self) -> None:
        width = max(20, self.size.width - 8)
        closes = "Esc closes, down scrolls" + (", ? explains this page" if self._turn is not None else "")
        rows: list[Row] = [row(*heading(self._title), piece(f"   {closes}", "muted")), BLANK]
        rows += [row("  ", *line) for line in facts(self._lines, width - 2)]
        self.query_one("#page", Lines).show(Page(rows=rows))


def meaning_of(name: str, known: Set[str]) -> list[Line]:
    """What an explanation says that is not known yet; nothing of what the glossary does not hold."""
    found = glossary().get(name)
    if found is None:
        return []
    guards = [Line(name="" if i else "guards", text=guard) for i, guard in enumerate(found.guards)]
    means = [] if found.meaning in known else [Line(name="means", text=found.meaning)]
    edit = [Line(name="" if i else "edit", text=line) for i, line in enumerate(found.example.splitlines())]
    return [*means, *edit, Line(name="from", text=found.source), *guards]


class Ask(ModalScreen[bool]):
    """One question."""

    BINDINGS = [Binding("y", "answer(True)", "yes"), Binding("n,escape,enter,q", "answer(False)", "no")]

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


KINDS = ("column", "class", "reach", "state", "signal")  # of the glossary's words, those that screens show
COMMON = ("on", "other", "attached", "live", "next", "where")  # say on a screen no more than anywhere else
SAID = {  # the pattern of a word that a screen does not show by its name
    "limit": "[Ll]imited by",
    "confidence": r"[●○]|\((high|medium|low)\)",
    "signal": "signals?",
    "interval": r"\[\d+\.\d+–",
    "ab_pair": "A/B pairs?",
    "speed_up": "together",
    "own_cost": "(?:own )?cost",
    "straggler": "slowest",
    **{name: name for name in ("regime", "provisional", "shares", "window")},
}
LIMITS = frozenset(get_args(Limit)) - frozenset(get_args(Regime))  # that are no regime


def words_of(view: View, rows: Sequence[Row]) -> list[str]:
    """Names of what these rows show; the verdict's own words first."""
    text = "\n".join(map(plain, rows))
    named = {
        each.name: rf"{each.name.replace('_', ' ')}(?!\.?\w)"
        for each in glossary().values()
        if each.kind in KINDS and each.name not in COMMON
    }
    shown = [name for name, words in (SAID | named | SAID).items() if re.search(rf"(?<!\w)(?:{words})", text)]
    limit = "unknown" if view.snapshot is None else view.snapshot.limit
    own = [name for name in (limit, view.regime) if name in LIMITS or name == view.regime != "unknown"]
    return list(dict.fromkeys([*own, *shown]))


def word_of(name: str) -> list[Line]:
    """A word with the first sentence of what it means."""
    found = glossary().get(name)
    if found is None:
        return []
    first = found.meaning.split(". ")[0].rstrip(".")
    return [Line(name=found.name.replace("_", " "), text=f"{first}.")]
