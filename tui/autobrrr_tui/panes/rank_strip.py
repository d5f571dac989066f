"""The ranks of a job as a strip: one cell a rank; marked the one that the others wait for."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from autobrrr.quantities import duration
from autobrrr.records import RankLine
from autobrrr_tui.text_bars import flowed, sparkline
from autobrrr_tui.text_rows import Piece, piece

MOST_LINES = 2


def strip(ranks: Sequence[RankLine], room: int) -> list[list[Piece]]:
    """Lines of cells; with little room the step times are left out but for the slowest, then the numbers."""
    slowest = next((each for each in ranks if each.slowest), None)
    for spelled in (True, False):
        lines = flowed([_cell(each, slowest, spelled=spelled) for each in ranks], room, gap=1)
        if len(lines) <= MOST_LINES:
            return lines
    return _many(ranks, slowest, room)


def _many(ranks: Sequence[RankLine], slowest: RankLine | None, room: int) -> list[list[Piece]]:
    """How many there are and which is the slowest; one column a rank, or a few ranks: their slowest."""
    each = -(-len(ranks) // max(1, room))
    groups = [ranks[at : at + each] for at in range(0, len(ranks), each)]
    times = [max((one.step_ns for one in group if one.step_ns is not None), default=None) for group in groups]
    said = [piece(f"{len(ranks)} ranks")]
    if slowest is not None:
        said.append(piece(f"  [{number(slowest)} {duration(slowest.step_ns)} slowest]", "bad"))
    known = [one.step_ns for one in ranks if one.step_ns is not None]
    if not known:
        return [said]
    said.append(piece(f"  median {duration(median(known))}", "dim"))
    bars = [
        piece(text, "bad" if slowest in group else "good")
        for text, group in zip(sparkline(times, len(times)), groups, strict=True)
    ]
    return [said, bars]


def _cell(each: RankLine, slowest: RankLine | None, *, spelled: bool) -> Piece:
    if each is slowest:
        return piece(f"[{number(each)} {duration(each.step_ns)} slowest]", "bad")
    tone = "dim" if each.step_ns is None else "good"
    return piece(f"[{number(each)} {duration(each.step_ns)}]" if spelled else f"[{number(each)}]", tone)


def number(each: RankLine) -> str:
    return "?" if each.rank is None else str(each.rank)
