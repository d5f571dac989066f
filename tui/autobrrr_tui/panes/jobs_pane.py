"""The list of jobs: a row each, with as many columns as there is room and something to say for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autobrrr.quantities import clock, duration, share, size
from autobrrr.records import JobLine
from autobrrr_tui import text_bars
from autobrrr_tui.list_choice import UNCHANGED, ListChoice, ListSort, chosen, head, left_out, listed
from autobrrr_tui.text_boxes import fitted
from autobrrr_tui.text_rows import BLANK, Page, Piece, Row, clipped, padded, piece, row
from autobrrr_tui.view_state import View

SPARK = 12  # looks whose step times are drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class JobColumn:
    """`least`: the width of the list from which on it is shown."""

    name: str
    cells: int
    least: int
    right: bool = False


COLUMNS = (
    JobColumn(name="pid", cells=8, least=0, right=True),
    JobColumn(name="user", cells=9, least=100),
    JobColumn(name="rank", cells=5, least=70, right=True),
    JobColumn(name="state", cells=9, least=0),
    JobColumn(name="cpu", cells=6, least=78, right=True),
    JobColumn(name="rss", cells=7, least=92, right=True),
    JobColumn(name="age", cells=8, least=88, right=True),
    JobColumn(name="verdict", cells=13, least=0),
    JobColumn(name="step", cells=8, least=0, right=True),
    JobColumn(name="steps over time", cells=15, least=140),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """One job: what stands in each column, and what of it is told last."""

    pid: int
    cells: dict[str, Piece]
    script: Piece
    sorted_by: dict[str, float | None]  # by the column whose order it is


def job_row(job: JobLine, view: View | None, medians_ns: Sequence[float | None], cpu: float | None) -> JobRow:
    """A job's row; `view` is what its session says, where it has one, `cpu` the share of one core."""
    found = view.snapshot if view is not None else None
    state = "attached" if job.attached else "ready" if job.attachable else "not ready"
    tone = {"attached": "good", "ready": "plain", "not ready": "dim"}[state]
    said = view.regime if view is not None else ""
    name = job.script or "?"
    name = name if name.startswith("-") else name.rsplit("/", 1)[-1]
    return JobRow(
        pid=job.pid,
        cells={
            "pid": piece(str(job.pid)),
            "user": piece(job.user or ""),
            "rank": piece("" if job.rank is None else str(job.rank), "bad" if job.slowest else "plain"),
            "state": piece(state, tone),
            "cpu": piece("" if cpu is None else share(cpu)),
            "rss": piece("" if job.rss_bytes is None else size(job.rss_bytes)),
            "age": piece("" if job.age_ns is None else clock(job.age_ns)),
            "verdict": piece(said, "regime"),
            "step": piece("" if found is None else duration(found.step_ns.median), "strong"),
            "steps over time": piece(text_bars.sparkline(medians_ns, SPARK), "accent"),
        },
        sorted_by={
            "cpu": cpu,
            "rss": job.rss_bytes,
            "age": job.age_ns,
            "step": None if found is None else found.step_ns.median,
        },
        script=piece(f"{name} {job.arguments or ''}".rstrip(), "plain" if state != "not ready" else "dim"),
    )


SORTS: tuple[ListSort[JobRow], ...] = tuple(
    ListSort(column=name, key=lambda job, name=name: job.sorted_by[name], falling=True)  # type: ignore[misc]
    for name in ("cpu", "rss", "age", "step")
)


def jobs_page(jobs: Sequence[JobRow], width: int, choice: ListChoice = UNCHANGED) -> Page:
    """The table; the row of a job can be chosen by its pid."""
    columns = [
        column
        for column in COLUMNS
        if width >= column.least and any(job.cells[column.name][0] for job in jobs)
    ]
    sort = chosen(SORTS, choice)
    heads = [piece(head(column.name, column.cells, sort, right=column.right), "dim") for column in columns]
    shown = listed(
        jobs, choice, SORTS, lambda job: " ".join(text for text, _, _ in (job.script, *job.cells.values()))
    )
    rows: list[Row] = [BLANK, *left_out(len(shown), len(jobs), choice)]
    rows.append(_row(heads, piece("script", "dim"), columns, width))
    picks: dict[int, str] = {}
    for job in shown:
        picks[len(rows)] = str(job.pid)
        rows.append(_row([job.cells[column.name] for column in columns], job.script, columns, width))
    return Page(rows=rows, picks=picks)


def _row(cells: Sequence[Piece], last: Piece, columns: Sequence[JobColumn], width: int) -> Row:
    found: list[Piece] = []
    for (text, tone, action), column in zip(cells, columns, strict=True):
        shown = clipped(text, column.cells)
        filled = f"{shown:>{column.cells}}" if column.right else padded(shown, column.cells)
        found += [piece("  "), (filled, tone, action)]
    used = sum(column.cells + 2 for column in columns)
    return (*row(*found), piece("  "), *fitted((last,), max(8, width - used - 2)))
