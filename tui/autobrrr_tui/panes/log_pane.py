"""Mode 6: what was said, newest last."""

from __future__ import annotations

import os

from autobrrr_tui.shown_figures import clock
from autobrrr_tui.text_rows import Page, Row, middled, piece, row, wrapped
from autobrrr_tui.view_state import View


def page(view: View, width: int, height: int) -> Page:
    rows: list[Row] = []
    for each in view.log:
        when = "" if each.t_ns is None else clock(each.t_ns)
        for i, line in enumerate(wrapped(each.text, width - 13)):
            rows.append(row(piece(f"  {when if i == 0 else '':>8}  ", "dim"), line))
    if view.log_path:
        home = os.path.expanduser("~")
        path = view.log_path.replace(home, "~", 1) if view.log_path.startswith(f"{home}/") else view.log_path
        rows.append(row(piece("  the whole log:", "dim"), piece(f" {middled(path, width - 18)}", "dim")))
    return Page(rows=rows or [row(piece("  nothing was said yet", "dim"))])
