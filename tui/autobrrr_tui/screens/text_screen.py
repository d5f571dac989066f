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
from autobrrr.report.pages.diagnosis_parts import meaning
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

    def __init__(
        self,
        title: str,
        lines: Sequence[Line],
        turn: Callable[[], None] | None = None,
    ) -> None:
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
    found = meaning(name)
    if found is None:
        return []
    guards = [Line(name="" if i else "guards", text=guard) for i, guard in enumerate(found.guards)]
    means = [] if found.meaning in known else [Line(name="means", text=found.meaning)]
    return [*means, Line(name="from", text=found.source), *guards]


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


WORDS = (  # what a page shows, and the name of the glossary that explains it
    ("[Ll]imited by", "limit"),
    ("regime", "regime"),
    ("[●○]|\\((high|medium|low)\\)", "confidence"),
    ("provisional", "provisional"),
    ("signals?", "signal"),
    ("shares", "shares"),
    ("batch probe", "batch_probe"),
    ("predicted", "predicted"),
    ("achieved", "achieved"),
    (r"\[\d+\.\d+–", "interval"),
    ("A/B pairs?", "ab_pair"),
    ("together", "speed_up"),
    ("(?:own )?cost", "own_cost"),
    ("p99", "p99"),
    ("traced", "traced"),
    ("bitwise", "bitwise"),
    ("rounding", "rounding"),
    ("stream", "stream"),
    ("changes training", "changes_training"),
    ("next epoch", "next_epoch"),
    ("not tried", "not_tried"),
    *((state, state) for state in ("trying", "confirming", "watched", "kept", "reverted", "refused")),
    *((state, state) for state in ("skipped", "queued", "manual", "restart")),
    ("slowest", "straggler"),
    ("window", "window"),
    ("recipe", "recipe"),
)

LIMITS = frozenset(get_args(Limit)) - frozenset(get_args(Regime))  # that are no regime
NOTHING = ("", "unknown", "measuring")


def words_of(view: View, rows: Sequence[Row]) -> list[str]:
    """Names of what these rows show; the verdict's own words first."""
    text = "\n".join(map(plain, rows))
    found = view.snapshot
    limit = "unknown" if found is None else found.limit
    named = [each for each in (limit if limit in LIMITS else "", view.regime) if each not in NOTHING]
    shown = [name for words, name in WORDS if re.search(rf"(?<!\w)(?:{words})", text)]
    return list(dict.fromkeys([*named, *shown]))


def word_of(name: str) -> list[Line]:
    """A word with the first sentence of what it means."""
    found = meaning(name)
    if found is None:
        return []
    first = found.meaning.split(". ")[0].rstrip(".")
    return [Line(name=found.name.replace("_", " "), text=f"{first}.")]
