"""The ranks of a job as a strip: how many, the one that the others wait for, and a column of each."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from autobrrr.quantities import duration
from autobrrr.records import RankLine
from autobrrr_tui.text_bars import sparkline
from autobrrr_tui.text_rows import Row, piece, row


def strip(ranks: Sequence[RankLine], room: int) -> list[Row]:
    """Two rows at most; where there are more ranks than cells a column stands for the slowest of a few."""
    slowest = next((each for each in ranks if each.slowest), None)
    each = -(-len(ranks) // max(1, room))
    groups = [ranks[at : at + each] for at in range(0, len(ranks), each)]
    times = [max((one.step_ns for one in group if one.step_ns is not None), default=None) for group in groups]
    said = [piece(f"{len(ranks)} rank{'s' * (len(ranks) > 1)}")]
    if slowest is not None:
        said.append(piece(f"  [{number(slowest)} {duration(slowest.step_ns)} slowest]", "bad"))
    known = [one.step_ns for one in ranks if one.step_ns is not None]
    if not known:
        return [row(*said)]
    columns = [
        piece(text, "bad" if slowest in group else "good")
        for text, group in zip(sparkline(times, len(times)), groups, strict=True)
    ]
    return [row(*said, piece(f"  median {duration(median(known))}", "dim")), row(*columns)]


def number(each: RankLine) -> str:
    return "?" if each.rank is None else str(each.rank)
