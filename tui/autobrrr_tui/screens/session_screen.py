"""One session: the modes, their keys, and what the keys request of the job."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path

from textual.binding import Binding
from textual.message import Message

from autobrrr.client.session_client import Client
from autobrrr.records import Advice, verdict_line
from autobrrr.records.session_requests import ApplyRemedies, Measure, SteerTuning, TuneRequest, UndoRemedy
from autobrrr.report.page_text import detail_cells, details
from autobrrr.report.text_rows import BLANK, Row, clipped, piece, row
from autobrrr_tui.panes import tuning_pane
from autobrrr_tui.panes.job_header import banner, brief, job_line
from autobrrr_tui.panes.mode_panes import PANES, ModePane
from autobrrr_tui.screens.list_screen import HELP, MODES, ListScreen, able, keys_line, modes_line, why_not
from autobrrr_tui.screens.text_screen import Ask, TextScreen, meaning_of, word_of, words_of
from autobrrr_tui.view_state import ScreenStanding, Source, View, Work
from autobrrr_tui.widgets.row_widget import Lines

TOLD_S = 12.0
SEARCHING = row(piece(" Enter ", "key"), "keeps the search ", piece(" Esc ", "key"), "shows all")


def touching(act: Callable[[SessionScreen], None]) -> Callable[[SessionScreen], None]:
    """Of a key that touches the job: where it does nothing, only says why."""

    @wraps(act)
    def checked(screen: SessionScreen) -> None:
        why = screen.why_not(act.__name__.removeprefix("action_"))
        if why:
            screen.tell(why)
        else:
            act(screen)

    return checked


class SessionScreen(ListScreen):
    """Shows a source.

    Args:
        export_to: The folder in which recipes are written.
        for_s: Leave after so long.
        leave_when_refused: Leave where the session can't be opened.
    """

    BINDINGS = [
        *(Binding(str(number), f"mode('{name}')", name, show=False) for number, name in enumerate(MODES)),
        Binding("y", "copy", "copy"),
    ]

    def __init__(
        self,
        source: Source,
        *,
        export_to: Path,
        for_s: float | None = None,
        leave_when_refused: bool = False,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(mode="glance")
        self.source = source
        self.view = View()
        self._export_to, self._clock_s = export_to, clock_s
        self._for_s, self._leave_when_refused = for_s, leave_when_refused
        self._told, self._told_s = "", 0.0

    def on_mount(self) -> None:
        self.draw()
        self.source.start(self._publish)
        if self._for_s is not None:
            self.set_timer(self._for_s, self.action_quit)

    def on_unmount(self) -> None:
        self.source.close()

    def on_updated(self, message: Updated) -> None:
        self.view = message.view
        if self.view.standing is ScreenStanding.REFUSED and self._leave_when_refused:
            self.app.exit()
        self.draw()

    def on_lines_chosen(self, message: Lines.Chosen) -> None:
        self.action_enter()

    def tell(self, text: str) -> None:
        """A sentence above the keys, for a while."""
        self._told, self._told_s = text, self._clock_s()
        self.draw()

    def action_mode(self, mode: str) -> None:
        if mode != self.mode:
            self._search.close()
            self.mode = mode
            self._parts = []
            self._body.restart(newest_last=self._pane.newest_last)
            self.draw()

    def leave(self) -> None:
        """Esc: to the glance, from there to the list of jobs where one came from it."""
        if self.mode == "glance" and len(self.app.screen_stack) > 2:
            self.app.pop_screen()
        else:
            self.action_mode("glance")

    def action_enter(self) -> None:
        picked = self._body.picked
        if self.mode == "glance":
            self.action_mode("diagnosis")
        elif picked is not None:
            line = self._line()
            name = picked if line is None else line.remedy.remedy
            known = {each.remedy.why for each in tuning_pane.lines(self.view)}  # in the details already
            told = [*details(self._parts, picked), *meaning_of(name, known)]
            self.app.push_screen(TextScreen(picked, told))

    def action_copy(self) -> None:
        text = self._copied()
        if text:
            self.app.copy_to_clipboard(text)
            self.tell(f"copied: {text.splitlines()[0]}")
        else:
            self.tell("there is nothing to copy here")

    def action_help(self) -> None:
        self.app.push_screen(TextScreen("Keys", HELP, turn=self._help_on_words))

    @touching
    def action_tune(self) -> None:
        if self.view.tuning:
            asked = "Stop the tuning? The current trial is reverted; what was kept stays applied."
            self._confirm(asked, "stop it", lambda client: client.ask(SteerTuning("cancel")), at_once=True)
        else:
            self.action_mode("tuning")
            self._request(lambda client: client.ask(TuneRequest(stays=True)), "tuning begins")

    @touching
    def action_pause(self) -> None:
        if self.view.paused:
            self._request(lambda client: client.ask(SteerTuning("resume")), "the tuner continues")
        else:
            self._request(
                lambda client: client.ask(SteerTuning("pause")), "the tuner pauses after this A/B pair"
            )

    def action_apply(self) -> None:
        line, why = self._line(), self.why_not("apply")
        if line is None and self.view.acting:
            self.action_mode("tuning")
        if line is None or why:
            self.tell(why)
            return
        work = partial(_apply, line.remedy)
        if line.class_tone == "warn":
            class_ = line.remedy.class_
            does = "draws other random numbers" if class_ == "stream" else "changes the training"
            self._confirm(f"{line.key} is of class {class_}: it {does}. Apply it?", "apply it", work)
        else:
            self._request(work, f"{line.key} will be applied at the next step boundary")

    @touching
    def action_undo(self) -> None:
        line, on = self._line(), self.view.active
        chosen = next((each for each in on if line is not None and each.token == line.token), on[-1])
        undo = partial(_undo, chosen.remedy, chosen.token)
        self._request(undo, f"reverting {chosen.label}")

    @touching
    def action_probe(self) -> None:
        self._request(lambda client: client.ask(Measure("all", "on")), "measuring again")

    @touching
    def action_window(self) -> None:
        self._request(lambda client: client.ask(Measure("window")), "asked for a window")

    @touching
    def action_detach(self) -> None:
        on = self.view.active
        if on or self.view.tuning:
            what = ", ".join(each.remedy for each in on) or "the trial that runs"
            self._confirm(
                f"Detach? This reverts {what} and ends the session.", "detach", _detach, at_once=True
            )
        else:
            self._request(_detach, "detaching", at_once=True)

    def action_export(self) -> None:
        recipe_now = self.view.details.recipe
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

    @property
    def _pane(self) -> ModePane:
        return PANES[self.mode]

    def _line(self) -> tuning_pane.RemedyRow | None:
        """The remedy that is chosen, where mode 3 is open."""
        if self.mode != "tuning":
            return None
        return next((line for line in tuning_pane.lines(self.view) if line.key == self._body.picked), None)

    def _copied(self) -> str:
        """What `y` copies: the recipe in its mode, else what is chosen, else what the verdict says."""
        recipe, found = self.view.details.recipe, self.view.snapshot
        if self.mode == "recipe":
            return "" if recipe is None else recipe.text
        picked, copied = self._body.picked, self._pane.copied
        if picked is not None:
            return picked if copied is None else copied(self.view, picked)
        return "" if found is None else verdict_line(found)

    def why_not(self, action: str) -> str:
        """Why a key that touches the job does nothing."""
        return why_not(self.view, self._line(), action)

    def _confirm(self, question: str, yes: str, work: Work, *, at_once: bool = False) -> None:
        def answered(sure: bool | None) -> None:
            if sure:
                self._request(work, f"{yes} ...", at_once=at_once)
            else:
                self.tell("left as it is")

        self.app.push_screen(Ask(question, yes), answered)

    def _request(self, work: Work, said: str, *, at_once: bool = False) -> None:
        self.tell(said)
        self.source.request(work, lambda text: self.call_later(self.tell, text), at_once=at_once)

    def _publish(self, view: View) -> None:
        self.post_message(Updated(view))

    def _help_on_words(self) -> None:
        """What the words mean that stand on this page."""
        detail = self.query_one("#detail", Lines)
        shown = [*self.query_one("#head", Lines).rows, *self._body.rows]
        shown += detail.rows if detail.size.width else []
        said = [each for name in words_of(self.view, shown) for each in word_of(name)]
        self.app.push_screen(TextScreen("Words on this page", said))

    def draw(self) -> None:
        if not self.is_mounted:
            return
        width, view = self.size.width, self.view
        told = banner(view, width)
        if not told and self.size.height > 16:
            told = [BLANK]  # a banner comes and goes in its place: nothing below moves
        head = [job_line(view, width), *([] if self.mode == "glance" else [brief(view, width)]), *told]
        self._show("modes", [modes_line(self.mode, width)])
        self._show("head", head, len(head))
        try:
            room = self.size.height - len(head) - 3
            self._list(self._pane.parts(self.view, room), width, room)
        except (ArithmeticError, LookupError, ValueError) as error:  # figures of a damaged recording, say
            self._show("body", [row(piece(f"  these figures can't be drawn ({error})", "warn"))])
        now = {"pause": "go on"} if view.paused else {}
        keys = keys_line(width, self._able(), now | ({"tune": "stop"} if view.tuning else {}))
        self._show("keys", [SEARCHING if self._note_or_search(self._note(width)) else keys])

    def _able(self) -> frozenset[str]:
        """The keys that do something in this mode."""
        found = {"enter"} if self._body.picked is not None else set()
        found |= {"search"} if self.table is not None else set()
        return able(self.view, self._line()) | found | ({"sort"} if self._sorts else set())

    def _note(self, width: int) -> Row:
        if self._told and self._clock_s() - self._told_s < TOLD_S:
            return row(piece(clipped(f" {self._told}", width), "warn"))
        line = self._line()
        return tuning_pane.note(line, width) if line is not None and not detail_cells(width) else ()


def _apply(remedy: Advice, client: Client) -> str:
    (outcome,) = client.ask(ApplyRemedies([remedy]))
    return f"{remedy.remedy} is {'on' if outcome.why is None else f'not on: {outcome.why}'}"


def _undo(remedy: str, token: int, client: Client) -> str:
    why = client.ask(UndoRemedy(token))
    return f"{remedy} is off" if why is None else f"{remedy} is still on: {why}"


def _detach(client: Client) -> str:
    left = client.detach().left
    return "detached" if not left else f"detached; left behind: {', '.join(left)}"


def _free_name(folder: Path, pid: int | None) -> Path:
    """`autobrrr-PID.toml`, or the first with a number that is not taken."""
    stem = f"autobrrr-{pid}" if pid is not None else "autobrrr"
    names = [f"{stem}.toml", *(f"{stem}-{number}.toml" for number in range(2, 1000))]
    return next((folder / name for name in names if not (folder / name).exists()), folder / names[-1])


class Updated(Message):
    """There is a new view."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self.view = view

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, Updated)
