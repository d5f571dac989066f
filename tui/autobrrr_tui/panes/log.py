"""Mode 6: what was said, newest last."""

from __future__ import annotations

from autobrrr_tui.figures import clock
from autobrrr_tui.rows import Page, Row, piece, row, wrapped
from autobrrr_tui.state import View


def page(view: View, width: int, height: int) -> Page:
    rows: list[Row] = []
    for each in view.log:
        when = "" if each.t_ns is None else clock(each.t_ns)
        for i, line in enumerate(wrapped(each.text, width - 13)):
            rows.append(row(piece(f"  {when if i == 0 else '':>8}  ", "dim"), line))
    if view.log_path:
        rows.append(row(piece(f"  the whole log: {view.log_path}", "dim")))
    return Page(rows=rows or [row(piece("  nothing was said yet", "dim"))])
