"""All training jobs of this machine: which are attached, what those are bound by; Enter goes into one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from autobrrr.client.each_rank import Joiner, ask
from autobrrr.client.session_client import join
from autobrrr.quantities import clock
from autobrrr.records import JobLine, verdict_head
from autobrrr.records.busy_words import busy_words
from autobrrr.report.page_model import Cell, Line, LineGroup, Tone, Value, figure, table
from autobrrr.report.page_text import ScreenPart, page_rows
from autobrrr.report.pages.diagnosis_parts import verdict_lines
from autobrrr.report.text_bars import sparkline
from autobrrr.report.text_rows import EDGES, boxed, clipped, piece, plain, row
from autobrrr_tui.panes.glance_pane import gain
from autobrrr_tui.screens.list_screen import HELP, ListScreen, keys_line
from autobrrr_tui.screens.session_screen import SessionScreen
from autobrrr_tui.screens.text_screen import TextScreen
from autobrrr_tui.view_state import ScreenStanding, Source, View
from autobrrr_tui.widgets.row_widget import Lines

EVERY_S = 2.0
GAIN_CELLS = 120
PREVIEW = 8  # rows of the box about the job under the cursor
ListJobs = Callable[[], list[JobLine]]
Enter = Callable[[int], Source]


class TopScreen(ListScreen):
    """Lists jobs on a thread of its own; attaches to nothing before Enter."""

    def __init__(self, list_jobs: ListJobs, enter: Enter, joiner: Joiner = join) -> None:
        super().__init__(mode="jobs")
        self._list_jobs, self._enter, self._joiner = list_jobs, enter, joiner
        self._jobs: list[JobLine] | None = None
        self._views: dict[int, View] = {}
        self._cpu: dict[int, float | None] = {}  # of one core, since the last look
        self._medians: dict[int, tuple[float | None, ...]] = {}
        self._left = threading.Event()
        self._told = ""

    def on_mount(self) -> None:
        self.draw()
        threading.Thread(target=self._watch, name="jobs", daemon=True).start()

    def on_unmount(self) -> None:
        self._left.set()

    def _listed(self, jobs: list[JobLine], views: dict[int, View]) -> None:
        for job in jobs:
            self._learn(job, views.get(job.pid))
        self._jobs, self._views = jobs, views
        self.draw()

    def _learn(self, job: JobLine, view: View | None) -> None:
        """Its CPU since the last look, and its step times over the last looks."""
        before = next((each for each in self._jobs or [] if each.pid == job.pid), None)
        cpu_ns, age_ns = (0, 0) if before is None else (before.cpu_ns or 0, before.age_ns or 0)
        passed_ns = (job.age_ns or 0) - age_ns
        known = job.cpu_ns is not None and passed_ns > 0
        self._cpu[job.pid] = ((job.cpu_ns or 0) - cpu_ns) / passed_ns if known else None
        if view is not None and view.snapshot is not None:
            seen = (*self._medians.get(job.pid, ()), view.snapshot.step_ns.median)
            self._medians[job.pid] = seen[-SPARK:]

    def on_lines_chosen(self, message: Lines.Chosen) -> None:
        self.action_enter()

    def action_enter(self) -> None:
        job = self._picked()
        if job is None:
            return
        if not (job.attached or job.attachable):
            self._told = f"process {job.pid} can't be attached to: {job.why}"
            self.draw()
            return
        self.app.push_screen(SessionScreen(self._enter(job.pid), export_to=Path.cwd()))

    def action_help(self) -> None:
        self.app.push_screen(TextScreen("Keys", HELP))

    def _watch(self) -> None:
        while not self._left.is_set():
            jobs = self._list_jobs()
            found = ask([job.pid for job in jobs if job.attached], joiner=self._joiner)
            views = {
                each.pid: View(standing=ScreenStanding.LIVE, pid=each.pid, snapshot=each) for each in found
            }
            self.call_later(self._listed, jobs, views)
            self._left.wait(EVERY_S)

    def draw(self) -> None:
        width, tall = self.size.width, self.size.height
        self._show("modes", [row(piece(" autobrrr  ", "strong"), "training jobs on this machine")])
        more = {str(job.pid): more_of(job, self._views.get(job.pid)) for job in self._jobs or []}
        is_wide = self._list(self._table(more), width, tall - 4)
        job = self._picked()
        known = [] if job is None or is_wide or tall // 3 < PREVIEW else more[str(job.pid)]
        rows = page_rows([LineGroup(lines=known)], width - EDGES).rows if known else []
        name = "" if job is None else clipped(f"{job.script or '?'} (pid {job.pid})", max(8, width - 8))
        self._show("below", boxed(name, rows, width, PREVIEW) if rows else [], PREVIEW if rows else 0)
        self._note_or_search(row(piece(clipped(f" {self._told}", width), "warn")))
        enters = "go in" if job is not None and job.attached else "attach and go in"
        can = frozenset({"search", "sort", *(["enter"] if job is not None else [])})
        self._show("keys", [keys_line(width, can, {"enter": enters})])

    def _table(self, more: Mapping[str, Sequence[Line]]) -> Sequence[ScreenPart]:
        if self._jobs is None:
            return [Line(text="looking for training jobs ...", tone="muted")]
        if not self._jobs:
            none = "no training job on this machine (processes with PyTorch that are ours to read)"
            return [Line(text=none), Line(text="autobrrr top --demo plays a recorded session", tone="muted")]
        rows = [
            job_row(job, self._views.get(job.pid), self._medians.get(job.pid, ()), self._cpu.get(job.pid))
            for job in sorted(self._jobs, key=lambda job: (job.job or str(job.pid), job.rank or 0, job.pid))
        ]
        return [table("", HEADS, rows, keys=[str(cells[0]) for cells in rows], more=more, tall=1)]

    def _picked(self) -> JobLine | None:
        return next((each for each in self._jobs or [] if str(each.pid) == self._body.picked), None)


SPARK = 12  # looks whose step times are drawn
HEADS = (
    *("#-pid", "-state", "-verdict", "step:ns", "~#-rank", "~cpu:share", "~#age", "~rss:bytes", "~-user"),
    *("~-steps over time", "-script"),
)
STATES: dict[str, Tone] = {"attached": "better", "not ready": "muted"}


def more_of(job: JobLine, view: View | None) -> list[Line]:
    """Verdict and gain of a job that has a session, else what keeps it from one."""
    script = Line(name="script", text=" ".join(filter(None, (job.script, job.arguments))))
    found = None if view is None else view.snapshot
    if view is None or found is None:
        told = "not attached: Enter attaches and shows it" if job.attachable else job.why or ""
        return [Line(name="state" if job.attachable else "why", text=told), script]
    gained = gain(view, GAIN_CELLS)
    return [
        Line(name="verdict", text=verdict_head(found), tone="head"),
        *(each for each in verdict_lines(found) if each.name != "step"),
        Line(name="machine", text=busy_words(found), tone="warn"),
        Line(name=gained.head, text="; ".join(plain(each) for each in gained.rows)),
        script,
    ]


def job_row(
    job: JobLine, view: View | None, medians_ns: Sequence[float | None], cpu: float | None
) -> list[Value]:
    """A job's row; `view` is what its session says, where it has one, `cpu` the share of one core."""
    found = view.snapshot if view is not None else None
    state = "attached" if job.attached else "ready" if job.attachable else "not ready"
    name = job.script or "?"
    name = name if name.startswith("-") else name.rsplit("/", 1)[-1]
    return [
        str(job.pid),
        Cell(text=state, tone=STATES.get(state, "")),
        Cell(text="" if view is None else view.regime, tone="head"),
        None if found is None else found.step_ns.median,
        Cell(text="" if job.rank is None else str(job.rank), tone="worse" if job.slowest else ""),
        cpu,
        figure("" if job.age_ns is None else clock(job.age_ns), job.age_ns),
        job.rss_bytes,
        job.user or "",
        Cell(text=sparkline(medians_ns, SPARK), tone="accent"),
        Cell(text=f"{name} {job.arguments or ''}".rstrip(), tone="muted" if state == "not ready" else ""),
    ]
