"""All training jobs of this machine: which are attached, what those are bound by; Enter goes into one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import Screen

from autobrrr.client.session_client import Client, join
from autobrrr.errors import AutobrrrError
from autobrrr.records import JobLine
from autobrrr_tui.screens.session_screen import SessionScreen
from autobrrr_tui.screens.text_screen import help_page
from autobrrr_tui.shown_figures import clock, duration
from autobrrr_tui.sources.view_source import Source
from autobrrr_tui.text_rows import BLANK, Page, Row, clipped, padded, piece, row
from autobrrr_tui.theme import styles
from autobrrr_tui.view_messages import Listed
from autobrrr_tui.view_state import ScreenStanding, View
from autobrrr_tui.widgets.row_widget import Lines

EVERY_S = 2.0
ListJobs = Callable[[], list[JobLine]]
Enter = Callable[[int], Source]


class TopScreen(Screen[None]):
    """Lists jobs on a thread of its own; attaches to nothing before Enter."""

    BINDINGS = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("enter", "enter", "go in"),
        Binding("question_mark", "help", "help"),
        Binding("q,escape", "quit", "quit"),
    ]

    def __init__(
        self, list_jobs: ListJobs, enter: Enter, joiner: Callable[[int], Client | None] = join
    ) -> None:
        super().__init__()
        self._list_jobs, self._enter, self._join = list_jobs, enter, joiner
        self._jobs: list[JobLine] | None = None
        self._views: dict[int, View] = {}
        self._left = threading.Event()
        self._told = ""

    def compose(self) -> ComposeResult:
        for name in ("modes", "jobs", "note", "keys"):
            yield Lines(lambda: styles(not self.app.current_theme.dark), id=name)

    def on_mount(self) -> None:
        self._draw()
        threading.Thread(target=self._watch, name="jobs", daemon=True).start()

    def on_unmount(self) -> None:
        self._left.set()

    def on_resize(self) -> None:
        self._draw()

    def on_listed(self, message: Listed) -> None:
        self._jobs, self._views = message.jobs, message.views
        self._draw()

    def on_lines_chosen(self, message: Lines.Chosen) -> None:
        self.action_enter()

    def action_move(self, by: int) -> None:
        self.query_one("#jobs", Lines).move(by)

    def action_enter(self) -> None:
        picked = self.query_one("#jobs", Lines).picked
        job = next((each for each in self._jobs or [] if str(each.pid) == picked), None)
        if job is None:
            return
        if not (job.attached or job.attachable):
            self._told = f"process {job.pid} can't be attached to: {job.why}"
            self._draw()
            return
        self.app.push_screen(SessionScreen(self._enter(job.pid), export_to=Path.cwd()))

    def action_help(self) -> None:
        self.app.push_screen(help_page())

    def action_quit(self) -> None:
        self.app.exit()

    def _watch(self) -> None:
        clients: dict[int, Client] = {}
        while not self._left.is_set():
            jobs = self._list_jobs()
            self.post_message(Listed(jobs, self._look(jobs, clients)))
            self._left.wait(EVERY_S)
        for client in clients.values():
            client.close()

    def _look(self, jobs: list[JobLine], clients: dict[int, Client]) -> dict[int, View]:
        """A snapshot of every session; one that fails is asked anew the next time."""
        views: dict[int, View] = {}
        for pid in [job.pid for job in jobs if job.attached]:
            try:
                client = clients.get(pid) or self._join(pid)
                if client is None:
                    continue
                clients[pid] = client
                views[pid] = replace(View(standing=ScreenStanding.LIVE), pid=pid, snapshot=client.snapshot())
            except AutobrrrError:
                if pid in clients:
                    clients.pop(pid).close()
        for pid in set(clients) - {job.pid for job in jobs if job.attached}:
            clients.pop(pid).close()
        return views

    def _draw(self) -> None:
        width = self.size.width
        self._show("modes", Page(rows=[row(piece(" autobrrr  ", "strong"), "training jobs on this machine")]))
        self._show("jobs", self._page(width))
        self._show("note", Page(rows=[row(piece(clipped(f" {self._told}", width), "warn"))]))
        keys = row(
            piece(" Enter ", "key", "screen.enter"),
            "go in, attaching where there is no session  " if width >= 70 else "go in or attach  ",
            piece(" ? ", "key", "screen.help"),
            "help ",
            piece(" q ", "key", "screen.quit"),
            "quit",
        )
        self._show("keys", Page(rows=[keys]))

    def _page(self, width: int) -> Page:
        if self._jobs is None:
            return Page(rows=[BLANK, row(piece("  looking for training jobs ...", "dim"))])
        if not self._jobs:
            return Page(
                rows=[
                    BLANK,
                    row("  no training job on this machine (processes with PyTorch that are ours to read)"),
                    row(piece("  autobrrr top --demo plays a recorded session", "dim")),
                ]
            )
        heads = _columns("pid", "state", "regime", "step", rank="rank", since="for", width=width)
        rows: list[Row] = [
            BLANK,
            row(piece(f"{heads}script", "dim")),
        ]
        picks: dict[int, str] = {}
        for job in self._jobs:
            picks[len(rows)] = str(job.pid)
            rows.append(self._row(job, width))
        return Page(rows=rows, picks=picks)

    def _row(self, job: JobLine, width: int) -> Row:
        view = self._views.get(job.pid)
        found = view.snapshot if view is not None else None
        state = "attached" if job.attached else "ready" if job.attachable else "no"
        tone = {"attached": "good", "ready": "plain", "no": "dim"}[state]
        regime = view.regime if view is not None else ""
        step = duration(found.step_ns.median) if found is not None else ""
        since = clock(found.t_ns) if found is not None else ""
        rank = "" if job.rank is None else str(job.rank)
        left = _columns(str(job.pid), state, padded(regime, 15), step, rank=rank, since=since, width=width)
        before, _, after = left.partition(state)
        gap, _, rest = after.partition(regime) if regime else ("", "", after)
        name = job.script or "?"
        name = name if name.startswith("-") else name.rsplit("/", 1)[-1]
        script = name if state != "no" else f"{name} ({job.why})"
        shown = clipped(script, max(8, width - len(left)))
        return row(before, piece(state, tone), gap, piece(regime, "regime"), rest, shown)

    def _show(self, name: str, page: Page) -> None:
        self.query_one(f"#{name}", Lines).show(page)


def _columns(pid: str, state: str, regime: str, step: str, *, rank: str, since: str, width: int) -> str:
    """What stands left of a script's name; with little room rank and age are left out."""
    if width < 80:
        return f"  {pid:>8}  {state:<10}{regime:<15}{step:>9}  "
    return f"  {pid:>8} {rank:>4}  {state:<10}{regime:<15}{step:>9}  {since:>8}  "
