"""The ranks of a job as a strip: one cell a rank, the slowest marked."""

from __future__ import annotations

from collections.abc import Sequence

from autobrrr_tui.bars import flowed
from autobrrr_tui.figures import duration
from autobrrr_tui.rows import Piece, piece
from autobrrr_tui.state import RankCell


def strip(ranks: Sequence[RankCell], room: int) -> list[list[Piece]]:
    """Lines of cells; with little room the step times are left out, but for the slowest."""
    known = [each for each in ranks if each.step_ns is not None]
    slowest = max(known, key=lambda each: each.step_ns or 0) if len(known) > 1 else None
    cells = [_cell(each, slowest, spelled=True) for each in ranks]
    lines = flowed(cells, room, gap=1)
    if len(lines) > 2:
        lines = flowed([_cell(each, slowest, spelled=False) for each in ranks], room, gap=1)
    return lines[:2]


def _cell(each: RankCell, slowest: RankCell | None, *, spelled: bool) -> Piece:
    if slowest is not None and each.rank == slowest.rank:
        return piece(f"[{each.rank} {duration(each.step_ns)} slowest]", "bad")
    tone = "dim" if each.step_ns is None else "good"
    return piece(f"[{each.rank} {duration(each.step_ns)}]" if spelled else f"[{each.rank}]", tone)
