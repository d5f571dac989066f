"""Mode 2: the diagnosis as a session's page shows it."""

from __future__ import annotations

from collections.abc import Sequence

from autobrrr.report.page_model import Line
from autobrrr.report.pages.diagnosis_parts import diagnosis_sections
from autobrrr_tui.page_rows import ScreenPart
from autobrrr_tui.view_state import View


def parts(view: View, height: int) -> Sequence[ScreenPart]:
    found = view.snapshot
    if found is None:
        return [Line(text="nothing is known yet", tone="muted")]
    return [part for each in diagnosis_sections(found) for part in each.parts]
