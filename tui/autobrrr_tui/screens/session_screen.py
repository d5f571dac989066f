"""One session: the modes, their keys, and what the keys request of the job."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Input

from autobrrr.records import verdict_line
from autobrrr.records.wire_answers import Explained
from autobrrr.report.page_model import PageTable
from autobrrr.report.text.trial_words import label
from autobrrr_tui.page_rows import (
    UNCHANGED,
    ListChoice,
    ScreenPart,
    chosen_table,
    detail_cells,
    details,
    page_rows,
    sorting,
)
from autobrrr_tui.panes import tuning_pane
from autobrrr_tui.panes.job_header import banner, brief, job_line
from autobrrr_tui.panes.mode_panes import PANES, ModePane
from autobrrr_tui.screens.key_bar import MODES, TOUCHING, able, keys_line, modes_line
from autobrrr_tui.screens.question_screen import Ask
from autobrrr_tui.screens.search_field import SearchField
from autobrrr_tui.screens.text_screen import TextScreen, details_page, help_page, meaning_of
from autobrrr_tui.screens.word_page import word_of, words_of, words_page
from autobrrr_tui.sources.view_source import Do, Source, ViewRequest
from autobrrr_tui.text_boxes import EDGES, boxed
from autobrrr_tui.text_rows import BLANK, Page, Row, clipped, piece, row
from autobrrr_tui.theme import styles
from autobrrr_tui.view_messages import Meaning, Told, Updated
from autobrrr_tui.view_state import ScreenStanding, View
from autobrrr_tui.widgets.row_widget import Lines

TOLD_S = 12.0
SEARCHING = row(piece(" Enter ", "key"), "keeps the search ", piece(" Esc ", "key"), "shows all")


class SessionScreen(Screen[None]):
    """Shows a source.

    Args:
        export_to: The folder in which recipes are written.
        for_s: Leave after so long.
        leave_when_refused: Leave where the session can't be opened.
    """

    BINDINGS = [
        *(Binding(str(number), f"mode('{name}')", name, show=False) for number, name in enumerate(MODES)),
        Binding("t", "tune", "tune"),
        Binding("a", "apply", "apply the chosen remedy"),
        Binding("u", "undo", "undo"),
        Binding("e", "export", "export the recipe"),
        Binding("w", "window", "profile"),
        Binding("p", "probe", "measure"),
        Binding("space", "pause", "pause or go on"),
        Binding("d", "detach", "detach"),
        Binding("q", "quit", "quit"),
        Binding("y", "copy", "copy"),
        Binding("slash", "search", "search"),
        Binding("s", "sort", "sort"),
        Binding("question_mark", "help", "help"),
        Binding("escape", "back", show=False),
        Binding("enter", "enter", show=False),
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "scroll(-10)", show=False),
        Binding("pagedown", "scroll(10)", show=False),
        Binding("home", "scroll(-100000)", show=False),
        Binding("end", "scroll(100000)", show=False),
    ]

    AUTO_FOCUS = ""

    def __init__(
        self,
        source: Source,
        *,
        export_to: Path,
        for_s: float | None = None,
        leave_when_refused: bool = False,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.source = source
        self.view = View()
        self.mode = "glance"
        self._export_to, self._clock_s = export_to, clock_s
        self._for_s, self._leave_when_refused = for_s, leave_when_refused
        self._told = ""
        self._told_s = 0.0
        self._choices: dict[str, ListChoice] = {}  # of each mode
        self._parts: Sequence[ScreenPart] = []  # of the page that is shown
        self._tones = styles(light=False)

    def compose(self) -> ComposeResult:
        for name in ("modes", "head"):
            yield self._lines(name)
        yield Horizontal(self._lines("body"), self._lines("detail"), id="list")
        yield SearchField()
        for name in ("note", "keys"):
            yield self._lines(name)

    def _lines(self, name: str) -> Lines:
        return Lines(lambda: self._tones, id=name)

    def on_mount(self) -> None:
        self._tones = styles(light=not self.app.current_theme.dark)
        self.app.theme_changed_signal.subscribe(self, lambda theme: self._recolour(theme.dark))
        self._draw()
        self.source.start(self._publish)
        if self._for_s is not None:
            self.set_timer(self._for_s, self.action_quit)

    def on_unmount(self) -> None:
        self.source.close()

    def on_resize(self) -> None:
        self._draw()

    def on_updated(self, message: Updated) -> None:
        self.view = message.view
        if self.view.standing is ScreenStanding.REFUSED and self._leave_when_refused:
            self.app.exit()
        self._draw()

    def on_told(self, message: Told) -> None:
        self.tell(message.text)

    def on_meaning(self, message: Meaning) -> None:
        if message.page is self.app.screen:  # else it has been closed meanwhile
            message.page.add(message.said)

    def on_input_changed(self, message: Input.Changed) -> None:
        if self._search.display:
            self._choose(replace(self._choice, search=message.value))

    def on_input_submitted(self) -> None:
        self._search.close()
        self._draw()

    def on_lines_picked(self) -> None:
        self._draw()

    def on_lines_chosen(self, message: Lines.Chosen) -> None:
        self.action_enter()

    def tell(self, text: str) -> None:
        """A sentence above the keys, for a while."""
        self._told, self._told_s = text, self._clock_s()
        self._draw()

    # Keys

    def action_mode(self, mode: str) -> None:
        if mode != self.mode:
            self._search.close()
            self.mode = mode
            self._parts = []
            self._body.restart(newest_last=self._pane.newest_last)
            self._draw()

    def action_move(self, by: int) -> None:
        self._body.move(by)
        self._draw()

    def action_scroll(self, by: int) -> None:
        self._body.scroll_rows(by)

    def action_search(self) -> None:
        if self._table is not None:
            self._search.open(self._choice.search)
            self._draw()

    def action_sort(self) -> None:
        if self._sorts:
            self._choose(replace(self._choice, sort=(self._choice.sort + 1) % (self._sorts + 1)))

    def action_back(self) -> None:
        if self._search.display or self._choice.search:
            self._search.close()
            self._choose(replace(self._choice, search=""))
        elif self.mode == "glance" and len(self.app.screen_stack) > 2:
            self.app.pop_screen()
        else:
            self.action_mode("glance")

    def action_enter(self) -> None:
        picked, parts = self._body.picked, self._pane.parts
        if self.mode == "glance":
            self.action_mode("diagnosis")
        elif picked is not None:
            page = details_page(
                picked, lambda width: details(parts(self.view, self.size.height), picked, width)
            )
            self.app.push_screen(page)
            if self._pane.explained:
                line = self._line()
                known = {line.means for line in tuning_pane.lines(self.view)}  # the details say it already
                self._explain(
                    [picked if line is None else line.remedy], page, lambda found: meaning_of(found, known)
                )

    def action_copy(self) -> None:
        text = self._copied()
        if text:
            self.app.copy_to_clipboard(text)
            self.tell(f"copied: {text.splitlines()[0]}")
        else:
            self.tell("there is nothing to copy here")

    def action_help(self) -> None:
        self.app.push_screen(help_page(self._help_on_words))

    def action_quit(self) -> None:
        self.app.exit()

    def action_tune(self) -> None:
        if self._refused("tune"):
            return
        if self.view.tuning:
            self._confirm(
                "Stop the tuning? The current trial is reverted; what was kept stays applied.",
                "stop it",
                ViewRequest(do=Do.CANCEL),
            )
            return
        self.action_mode("tuning")
        self._request(ViewRequest(do=Do.TUNE), "tuning begins")

    def action_pause(self) -> None:
        if self._refused("pause"):
            return
        if not self.view.tuning:
            self.tell("nothing is being tuned; t starts it")
        elif self.view.paused:
            self._request(ViewRequest(do=Do.RESUME), "the tuner continues")
        else:
            self._request(ViewRequest(do=Do.PAUSE), "the tuner pauses after this A/B pair")

    def action_apply(self) -> None:
        if self._refused("apply"):
            return
        line = self._line()
        if line is None:
            self.action_mode("tuning")
            self.tell("choose a remedy with up and down, then a")
        elif line.token is not None:
            self.tell(f"{line.key} is already on; u reverts it")
        elif line.reach != "live":
            self.tell(f"{line.key} can't be applied now ({line.reach}): autobrrr run --recipe FILE")
        else:
            request = ViewRequest(do=Do.APPLY, remedy=line.remedy, options=line.options)
            if line.class_ in tuning_pane.DARING:
                changes = (
                    "changes the training"
                    if line.class_ == "changes-training"
                    else "draws other random numbers"
                )
                self._confirm(
                    f"{line.key} is of class {line.class_}: it {changes}. Apply it?", "apply it", request
                )
            else:
                self._request(request, f"{line.key} will be applied at the next step boundary")

    def action_undo(self) -> None:
        if self._refused("undo"):
            return
        line = self._line()
        on = self.view.details.active if self.view.details is not None else []
        if line is not None and line.token is not None:
            self._request(
                ViewRequest(do=Do.UNDO, remedy=line.remedy, token=line.token), f"reverting {line.key}"
            )
        elif on:
            last = on[-1]
            self._request(
                ViewRequest(do=Do.UNDO, remedy=last.remedy, token=last.token),
                f"reverting {label(last.remedy, last.options)}",
            )
        else:
            self.tell("no remedy is on")

    def action_probe(self) -> None:
        if not self._refused("probe"):
            self._request(ViewRequest(do=Do.PROBE), "measuring again")

    def action_window(self) -> None:
        if not self._refused("window"):
            self._request(ViewRequest(do=Do.WINDOW), "asked for a window")

    def action_detach(self) -> None:
        if self._refused("detach"):
            return
        on = self.view.details.active if self.view.details is not None else []
        request = ViewRequest(do=Do.DETACH)
        if on or self.view.tuning:
            what = ", ".join(each.remedy for each in on) or "the trial that runs"
            self._confirm(f"Detach? This reverts {what} and ends the session.", "detach", request)
        else:
            self._request(request, "detaching")

    def action_export(self) -> None:
        recipe_now = self.view.details.recipe if self.view.details is not None else None
        if recipe_now is None:
            self.tell("no remedy is on, so there is no recipe to write")
            return
        file = _free_name(self._export_to, self.view.pid)
        try:
            with file.open("x", encoding="utf-8") as opened:
                opened.write(recipe_now.text)
        except OSError as error:
            self.tell(f"not written ({error.strerror}): {file}")
            return
        self.tell(f"written: {file}")

    # Inside

    @property
    def _body(self) -> Lines:
        return self.query_one("#body", Lines)

    @property
    def _head(self) -> Lines:
        return self.query_one("#head", Lines)

    @property
    def _search(self) -> SearchField:
        return self.query_one(SearchField)

    @property
    def _pane(self) -> ModePane:
        return PANES[self.mode]

    @property
    def _table(self) -> PageTable | None:
        """The list of this mode, where it has one."""
        return chosen_table(self._parts)

    @property
    def _sorts(self) -> int:
        return 0 if self._table is None else len(sorting(self._table))

    @property
    def _choice(self) -> ListChoice:
        return self._choices.get(self.mode, UNCHANGED)

    def _choose(self, choice: ListChoice) -> None:
        """Another search or sort of this mode's list."""
        self._choices[self.mode] = choice
        self._draw()
        self._body.reveal()

    def _line(self) -> tuning_pane.RemedyRow | None:
        """The remedy that is chosen, where mode 3 is open."""
        if self.mode != "tuning":
            return None
        return next((line for line in tuning_pane.lines(self.view) if line.key == self._body.picked), None)

    def _copied(self) -> str:
        """What `y` copies: the recipe in its mode, else what is chosen, else what the verdict says."""
        known, found = self.view.details, self.view.snapshot
        if self.mode == "recipe":
            return known.recipe.text if known is not None and known.recipe is not None else ""
        picked, copied = self._body.picked, self._pane.copied
        if picked is not None:
            return picked if copied is None else copied(self.view, picked)
        return "" if found is None else verdict_line(found)

    def _refused(self, action: str) -> bool:
        """Says why a key does nothing."""
        if action not in TOUCHING or self.view.acting:
            return False
        if self.view.readonly:
            self.tell(f"read-only: {action} would touch the job")
        elif self.view.standing is ScreenStanding.RECORDED:
            self.tell(f"this is a recorded session: there is no job to {action}")
        elif self.view.standing is ScreenStanding.OPENING:
            self.tell("not attached yet")
        else:
            self.tell(f"the session is not there: {self.view.why}")
        return True

    def _confirm(self, question: str, yes: str, request: ViewRequest) -> None:
        def answered(sure: bool | None) -> None:
            if sure:
                self._request(request, f"{yes} ...")
            else:
                self.tell("left as it is")

        self.app.push_screen(Ask(question, yes), answered)

    def _request(self, request: ViewRequest, said: str) -> None:
        self.tell(said)
        self.source.request(request, self._post_told)

    def _publish(self, view: View) -> None:
        self.post_message(Updated(view))

    def _post_told(self, text: str) -> None:
        self.post_message(Told(text))

    def _help_on_words(self) -> None:
        """What the words mean that stand on this page."""
        page, detail = words_page(), self.query_one("#detail", Lines)
        beside = detail.rows if detail.size.width else []
        self.app.push_screen(page)
        self._explain(words_of(self.view, (*self._head.rows, *self._body.rows, *beside)), page, word_of)

    def _explain(
        self, names: Sequence[str], page: TextScreen, said: Callable[[Explained | str], list[tuple[str, str]]]
    ) -> None:
        def tell(found: Explained | str) -> None:
            self.post_message(Meaning(page, said(found)))

        self.source.explain(names, tell)

    def _recolour(self, dark: bool) -> None:
        self._tones = styles(light=not dark)
        for lines in self.query(Lines):
            lines.refresh()

    def _draw(self) -> None:
        """Rows for every part; the widgets draw what differs."""
        if not self.is_mounted:
            return
        width, view = self.size.width, self.view
        told = banner(view, width)
        if not told and self.size.height > 16:
            told = [BLANK]  # a banner comes and goes in its place: nothing below moves
        head = [job_line(view, width), *([] if self.mode == "glance" else [brief(view, width)]), *told]
        self._show("modes", [modes_line(self.mode, width)])
        header = self._head
        if header.styles.height is None or header.styles.height.value != len(head):
            header.styles.height = len(head)
        header.show(Page(rows=head))
        room = self.size.height - len(head) - 3
        try:
            self._list(width, room)
        except (ArithmeticError, LookupError, ValueError) as error:  # figures of a damaged recording, say
            self._show("body", [row(piece(f"  these figures can't be drawn ({error})", "warn"))])
        searching = self._search.display
        self.query_one("#note").display = not searching
        self._show("note", [self._note(width)])
        self._show("keys", [SEARCHING if searching else keys_line(view, width, self._able())])

    def _list(self, width: int, room: int) -> None:
        """The page of the mode; on a wide screen the details of what is chosen beside it."""
        self._parts = self._pane.parts(self.view, room)
        beside = 0 if self._table is None else detail_cells(width)
        page = page_rows(self._parts, width - beside - bool(beside), self._choice)
        if not page.picks:
            page, beside = page_rows(self._parts, width, self._choice), 0
        detail = self.query_one("#detail", Lines)
        detail.styles.width = beside
        self._body.show(page)
        if beside and self._body.picked is not None:
            known = details(self._parts, self._body.picked, beside - EDGES)
            detail.show(Page(rows=boxed(clipped(self._body.picked, beside - 8), known, beside, room)))

    def _able(self) -> frozenset[str]:
        """The keys that do something in this mode."""
        found = {"enter"} if self._body.picked is not None else set()
        found |= {"search"} if self._table is not None else set()
        return able(self.view, self._line()) | found | ({"sort"} if self._sorts else set())

    def _note(self, width: int) -> Row:
        if self._told and self._clock_s() - self._told_s < TOLD_S:
            return row(piece(clipped(f" {self._told}", width), "warn"))
        line = self._line()
        return tuning_pane.note(line, width) if line is not None and not detail_cells(width) else ()

    def _show(self, name: str, rows: list[Row]) -> None:
        self.query_one(f"#{name}", Lines).show(Page(rows=rows))


def _free_name(folder: Path, pid: int | None) -> Path:
    """`autobrrr-PID.toml`, or the first with a number that is not taken."""
    stem = f"autobrrr-{pid}" if pid is not None else "autobrrr"
    names = [f"{stem}.toml", *(f"{stem}-{number}.toml" for number in range(2, 1000))]
    return next((folder / name for name in names if not (folder / name).exists()), folder / names[-1])
