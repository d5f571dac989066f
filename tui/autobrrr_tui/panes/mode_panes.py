"""The modes of a session by name: what each shows, and what can be done with its list."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from autobrrr.quantities import clock
from autobrrr.report.page_model import Bar, Cell, Line, LineGroup, PageTable
from autobrrr.report.page_text import Drawn, ScreenPart
from autobrrr.report.pages.diagnosis_parts import diagnosis_sections, operators_table, window_parts
from autobrrr_tui.panes import glance_pane, steps_pane, tuning_pane
from autobrrr_tui.view_state import Said, View

HOW = "w takes one: a few steps under torch.profiler; these take longer, the first by up to seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModePane:
    """One mode. `parts` are given the rows that there are."""

    parts: Callable[[View, int], Sequence[ScreenPart]]
    copied: Callable[[View, str], str] | None = None  # of the line that is chosen; None: its name
    newest_last: bool = False  # the end is kept in sight until the cursor leaves it


def _diagnosis(view: View, height: int) -> Sequence[ScreenPart]:
    """The diagnosis as a session's page shows it."""
    if view.snapshot is None:
        return [Line(text="nothing is known yet", tone="muted")]
    parts = [part for each in diagnosis_sections(view.snapshot) for part in each.parts]
    return [part for part in parts if isinstance(part, Line | LineGroup | Bar | PageTable)]


def _gaps(view: View, height: int) -> Sequence[ScreenPart]:
    """The last profiler window: idle time by cause, slowest operators; traced operators without one."""
    found, details = view.snapshot, view.details
    window = found.window if found is not None else None
    shown: list[ScreenPart] = [*window_parts(window)] if window is not None else []
    if window is None:
        shown = [Line(text="no profiler window was taken"), *[Line(text=HOW, tone="muted")] * view.acting]
    if found is not None and details.operators and not (window and window.by_op):
        ops = [(op.op, op.count, op.kernel_ns) for op in details.operators]
        shown.append(operators_table(ops, found.step_ns.median, "kernels of traced steps"))
    return shown


def _recipe(view: View, height: int) -> Sequence[ScreenPart]:
    """What is on in the job now, as the recipe that the next run would start with."""
    recipe = view.details.recipe
    if recipe is None:
        how = Line(text="t tunes the job, a in mode 3 applies one remedy", tone="muted")
        return [Line(text="no remedy is on, so there is no recipe yet"), *[how] * view.acting]
    if recipe.problem is None:
        stands = Line(text="valid: e writes it to a file", tone="better")
    else:
        stands = Line(text=f"not valid: {recipe.problem}", tone="worse")
    rows = [
        [Cell(text=line, tone="strong" if line.startswith("[") else "")] for line in recipe.text.splitlines()
    ]
    applied = {each.remedy.remedy: each for each in tuning_pane.lines(view) if each.token is not None}
    names = [line.partition("=")[0].strip().strip('"') for line in recipe.text.splitlines()]
    keys = [name if name in applied else "" for name in names]
    more = {name: tuning_pane.more_of(line) for name, line in applied.items()}
    return [stands, PageTable(title="", heads=("-",), rows=rows, keys=keys, more=more, tall=1)]


def _log(view: View, height: int) -> Sequence[ScreenPart]:
    """What was said, newest last, a row for each line; its details are the line whole."""
    if not view.log:
        return [Line(text="nothing was said yet", tone="muted")]
    rows = [[Cell(text=_when(each), tone="muted"), Cell(text=each.text)] for each in view.log]
    names = [_name(each) for each in view.log]
    more = {
        _name(each): [Line(name="at", text=_when(each)), Line(name="said", text=each.text)]
        for each in view.log
    }
    table = PageTable(title="", heads=("#-", "-"), rows=rows, keys=names, more=more, tall=1)
    path, home = view.log_path, os.path.expanduser("~")
    path = path.replace(home, "~", 1) if path.startswith(f"{home}/") else path
    return [table, *[Line(text=f"the whole log: {path}", tone="muted")] * bool(path)]


def _copied(view: View, key: str) -> str:
    """A line as it was said."""
    return next((each.text for each in view.log if _name(each) == key), "")


def _name(line: Said) -> str:
    return f"line {line.number}"


def _when(line: Said) -> str:
    return "" if line.t_ns is None else clock(line.t_ns)


PANES: dict[str, ModePane] = {
    "glance": ModePane(
        parts=lambda view, height: [Drawn(draw=partial(glance_pane.glance_rows, view, height))]
    ),
    "steps": ModePane(parts=steps_pane.parts),
    "diagnosis": ModePane(parts=_diagnosis),
    "tuning": ModePane(parts=tuning_pane.parts),
    "gaps": ModePane(parts=_gaps),
    "recipe": ModePane(parts=_recipe),
    "log": ModePane(parts=_log, copied=_copied, newest_last=True),
}
