"""The modes of a session by name: the page of each, and what can be done with its list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autobrrr_tui.list_choice import ListChoice
from autobrrr_tui.panes import (
    diagnosis_pane,
    gaps_pane,
    glance_pane,
    log_pane,
    recipe_pane,
    steps_pane,
    tuning_pane,
)
from autobrrr_tui.text_rows import Page, Row
from autobrrr_tui.view_state import View


@dataclass(frozen=True, slots=True, kw_only=True)
class ModePane:
    """One mode."""

    page: Callable[[View, int, int, ListChoice], Page]
    details: Callable[[View, str, int], list[Row]] | None = None  # of the line that is chosen
    searched: bool = False
    sorts: int = 0  # orders of its list beside the own one
    explained: bool = False  # its lines have names that the session explains
    copied: Callable[[View, str], str] | None = None  # of the line that is chosen; None: its name
    newest_last: bool = False  # the end is kept in sight until the cursor leaves it


PANES: dict[str, ModePane] = {
    "glance": ModePane(page=glance_pane.page),
    "steps": ModePane(
        page=steps_pane.page, details=steps_pane.details, searched=True, sorts=len(steps_pane.SORTS)
    ),
    "diagnosis": ModePane(
        page=diagnosis_pane.page,
        details=diagnosis_pane.details,
        searched=True,
        sorts=len(diagnosis_pane.SORTS),
        explained=True,
    ),
    "tuning": ModePane(
        page=tuning_pane.page,
        details=tuning_pane.details,
        searched=True,
        sorts=len(tuning_pane.SORTS),
        explained=True,
    ),
    "gaps": ModePane(
        page=gaps_pane.page, details=gaps_pane.details, searched=True, sorts=len(gaps_pane.SORTS)
    ),
    "recipe": ModePane(page=recipe_pane.page, details=recipe_pane.details, explained=True),
    "log": ModePane(
        page=log_pane.page,
        details=log_pane.details,
        searched=True,
        copied=log_pane.copied,
        newest_last=True,
    ),
}
