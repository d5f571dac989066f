"""Mode 5: what is on in the job now, as the recipe that the next run would start with."""

from __future__ import annotations

from collections.abc import Sequence

from autobrrr.report.page_model import Cell, Line, PageTable
from autobrrr_tui.page_rows import ScreenPart
from autobrrr_tui.panes.tuning_pane import lines, more_of
from autobrrr_tui.view_state import View


def parts(view: View, height: int) -> Sequence[ScreenPart]:
    recipe = view.details.recipe if view.details is not None else None
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
    applied = {each.remedy.remedy: each for each in lines(view) if each.token is not None}
    names = [line.partition("=")[0].strip().strip('"') for line in recipe.text.splitlines()]
    keys = [name if name in applied else "" for name in names]
    more = {name: more_of(line) for name, line in applied.items()}
    return [stands, PageTable(title="", heads=("-",), rows=rows, keys=keys, more=more, tall=1)]
