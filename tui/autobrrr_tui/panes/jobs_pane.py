"""The list of jobs: a row each, with as many columns as there is room and something to say for."""

from __future__ import annotations

from collections.abc import Sequence

from autobrrr.quantities import clock, duration, share, size
from autobrrr.records import JobLine
from autobrrr.report.page_model import Cell, PageTable, Tone, figure
from autobrrr_tui.text_bars import sparkline
from autobrrr_tui.view_state import View

SPARK = 12  # looks whose step times are drawn
HEADS = (
    *("#-pid", "-state", "-verdict", "#step", "~#-rank", "~#cpu", "~#age", "~#rss", "~-user"),
    *("~-steps over time", "-script"),
)
STATES: dict[str, Tone] = {"attached": "better", "not ready": "muted"}


def jobs_table(rows: Sequence[Sequence[Cell]]) -> PageTable:
    """The table; the row of a job can be chosen by its pid."""
    return PageTable(title="", heads=HEADS, rows=rows, keys=[cells[0].text for cells in rows], tall=1)


def job_row(
    job: JobLine, view: View | None, medians_ns: Sequence[float | None], cpu: float | None
) -> list[Cell]:
    """A job's row; `view` is what its session says, where it has one, `cpu` the share of one core."""
    found = view.snapshot if view is not None else None
    step_ns = None if found is None else found.step_ns.median
    state = "attached" if job.attached else "ready" if job.attachable else "not ready"
    name = job.script or "?"
    name = name if name.startswith("-") else name.rsplit("/", 1)[-1]
    return [
        Cell(text=str(job.pid)),
        Cell(text=state, tone=STATES.get(state, "")),
        Cell(text="" if view is None else view.regime, tone="head"),
        figure("" if step_ns is None else duration(step_ns), step_ns),
        Cell(text="" if job.rank is None else str(job.rank), tone="worse" if job.slowest else ""),
        figure("" if cpu is None else share(cpu), cpu),
        figure("" if job.age_ns is None else clock(job.age_ns), job.age_ns),
        figure("" if job.rss_bytes is None else size(job.rss_bytes), job.rss_bytes),
        Cell(text=job.user or ""),
        Cell(text=sparkline(medians_ns, SPARK), tone="accent"),
        Cell(text=f"{name} {job.arguments or ''}".rstrip(), tone="muted" if state == "not ready" else ""),
    ]
