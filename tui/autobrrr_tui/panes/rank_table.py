"""The ranks of a job as a table: what each does with its step, and what makes one of them late."""

from __future__ import annotations

from collections.abc import Sequence

from autobrrr.quantities import duration
from autobrrr.records import LateRank, RankLine
from autobrrr.records.rank_records import cause_words, straggler_words
from autobrrr_tui.panes.rank_strip import number
from autobrrr_tui.text_rows import Row, clipped, piece, row, wrapped

PHASE = 12


def table(ranks: Sequence[RankLine], straggler: LateRank | None, room: int) -> list[Row]:
    """One line a rank; own work and waits are those of the steps in which collectives were timed."""
    heads = f"{'rank':>4}{'step':>10}{'own work':>11}{'waits':>10}  {'longer in':<{PHASE}}cause"
    return [row(piece(clipped(heads, room), "dim")), *(_line(each, straggler, room) for each in ranks)]


def said(straggler: LateRank | None, room: int, most: int | None = None) -> list[Row]:
    """Who the others wait for, and why; nothing where the ranks were not compared."""
    words = "" if straggler is None else straggler_words(straggler, duration)
    tone = "bad" if straggler is not None and straggler.rank is not None else "plain"
    return [row(piece(line, tone)) for line in wrapped(words, room, most)]


def _line(each: RankLine, straggler: LateRank | None, room: int) -> Row:
    times = each.collectives
    own, waits = (None, None) if times is None else (times.own_ns, times.waits_ns)
    late = straggler is not None and straggler.rank is not None and straggler.rank == each.rank
    words = cause_words(straggler) if late and straggler is not None else ""
    phase = (each.phase or "").replace("_", " ")
    figures = f"{number(each):>4}{duration(each.step_ns):>10}{duration(own):>11}{duration(waits):>10}"
    line = f"{figures}  {phase:<{PHASE}}{words}"
    return row(piece(clipped(line.rstrip(), room), "bad" if late else "plain"))
