"""Mode 6: what was said, newest last, a row for each line; its details are the line whole."""

from __future__ import annotations

import os

from autobrrr.quantities import clock
from autobrrr_tui.list_choice import UNCHANGED, ListChoice, left_out, listed
from autobrrr_tui.text_rows import Page, Row, clipped, facts, middled, piece, row
from autobrrr_tui.view_state import Said, View


def page(view: View, width: int, height: int, choice: ListChoice = UNCHANGED) -> Page:
    shown = listed(view.log, choice, (), lambda said: said.text)
    rows: list[Row] = left_out(len(shown), len(view.log), choice)
    picks = {len(rows) + at: _name(each) for at, each in enumerate(shown)}
    for each in shown:
        rows.append(row(piece(f"  {_when(each):>8}  ", "dim"), clipped(each.text, width - 13)))
    if view.log_path:
        home = os.path.expanduser("~")
        path = view.log_path.replace(home, "~", 1) if view.log_path.startswith(f"{home}/") else view.log_path
        rows.append(row(piece("  the whole log:", "dim"), piece(f" {middled(path, width - 18)}", "dim")))
    return Page(rows=rows or [row(piece("  nothing was said yet", "dim"))], picks=picks)


def details(view: View, key: str, width: int) -> list[Row]:
    """One line whole."""
    each = next((each for each in view.log if _name(each) == key), None)
    return [] if each is None else facts([("at", _when(each), "plain"), ("said", each.text, "plain")], width)


def copied(view: View, key: str) -> str:
    """A line as it was said."""
    return next((each.text for each in view.log if _name(each) == key), "")


def _name(line: Said) -> str:
    return f"line {line.number}"


def _when(line: Said) -> str:
    return "" if line.t_ns is None else clock(line.t_ns)
