"""Mode 6: what was said, newest last, a row for each line; its details are the line whole."""

from __future__ import annotations

import os
from collections.abc import Sequence

from autobrrr.quantities import clock
from autobrrr.report.page_model import Cell, Line, PageTable
from autobrrr_tui.page_rows import Drawn, ScreenPart
from autobrrr_tui.text_rows import middled, piece, row
from autobrrr_tui.view_state import Said, View


def parts(view: View, height: int) -> Sequence[ScreenPart]:
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
    whole = Drawn(draw=lambda width: [row(piece(f"  the whole log: {middled(path, width - 18)}", "dim"))])
    return [table, whole] if path else [table]


def copied(view: View, key: str) -> str:
    """A line as it was said."""
    return next((each.text for each in view.log if _name(each) == key), "")


def _name(line: Said) -> str:
    return f"line {line.number}"


def _when(line: Said) -> str:
    return "" if line.t_ns is None else clock(line.t_ns)
