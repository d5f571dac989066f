"""Mode 5: what is on in the job now, as the recipe that the next run would start with."""

from __future__ import annotations

from autobrrr_tui.list_choice import UNCHANGED, ListChoice
from autobrrr_tui.panes import tuning_pane
from autobrrr_tui.text_rows import BLANK, Page, Row, heading, piece, row, wrapped
from autobrrr_tui.view_state import View


def page(view: View, width: int, height: int, choice: ListChoice = UNCHANGED) -> Page:
    recipe = view.details.recipe if view.details is not None else None
    if recipe is None:
        return Page(
            rows=[
                row("  no remedy is on, so there is no recipe yet"),
                *[row(piece("  t tunes the job, a in mode 3 applies one remedy", "dim"))] * view.acting,
            ]
        )
    if recipe.problem is None:
        rows: list[Row] = [row(piece("  valid", "good"), piece("    e writes it to a file", "dim"))]
    else:
        rows = [
            row(piece(f"  {line}", "bad")) for line in wrapped(f"not valid: {recipe.problem}", width - 4, 3)
        ]
    rows.append(BLANK)
    picks: dict[int, str] = {}
    applied = [each.remedy for each in tuning_pane.lines(view) if each.token is not None]
    for line in recipe.text.splitlines():
        remedy = line.partition("=")[0].strip().strip('"')
        if remedy in applied:
            picks[len(rows)] = remedy
        rows.append(heading(line) if line.startswith("[") else row(f"  {line}"))
    return Page(rows=rows, picks=picks)


def details(view: View, key: str, width: int) -> list[Row]:
    """All that is known of one remedy of the recipe."""
    found = (each for each in tuning_pane.lines(view) if each.remedy == key and each.token is not None)
    line = next(found, None)
    return [] if line is None else tuning_pane.details(view, line.key, width)
