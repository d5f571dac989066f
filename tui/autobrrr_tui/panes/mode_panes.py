"""The modes of a session by name: what each shows, and what can be done with its list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autobrrr_tui.page_rows import Drawn, ScreenPart
from autobrrr_tui.panes import (
    diagnosis_pane,
    gaps_pane,
    glance_pane,
    log_pane,
    recipe_pane,
    steps_pane,
    tuning_pane,
)
from autobrrr_tui.view_state import View


@dataclass(frozen=True, slots=True, kw_only=True)
class ModePane:
    """One mode. `parts` are given the rows that there are."""

    parts: Callable[[View, int], Sequence[ScreenPart]]
    explained: bool = False  # its lines have names that the session explains
    copied: Callable[[View, str], str] | None = None  # of the line that is chosen; None: its name
    newest_last: bool = False  # the end is kept in sight until the cursor leaves it


def _glance(view: View, height: int) -> Sequence[ScreenPart]:
    return [Drawn(draw=lambda width: glance_pane.page(view, width, height).rows)]


PANES: dict[str, ModePane] = {
    "glance": ModePane(parts=_glance),
    "steps": ModePane(parts=steps_pane.parts),
    "diagnosis": ModePane(parts=diagnosis_pane.parts, explained=True),
    "tuning": ModePane(parts=tuning_pane.parts, explained=True),
    "gaps": ModePane(parts=gaps_pane.parts),
    "recipe": ModePane(parts=recipe_pane.parts),
    "log": ModePane(parts=log_pane.parts, copied=log_pane.copied, newest_last=True),
}
