"""The ranks of a job: which one the others wait for, and a table with a row for each."""

from __future__ import annotations

from collections.abc import Sequence

from autobrrr.quantities import duration
from autobrrr.records import Diagnosis, LateRank, RankLine
from autobrrr.records.rank_records import cause_words, straggler_words
from autobrrr.report.page_model import Cell, PageTable, cells, section, time
from autobrrr.report.page_text import section_text


def ranks_words(found: Diagnosis) -> str | None:
    """Which rank the others wait for, and why, in a sentence; None for a job of one rank."""
    if found.straggler is not None:
        return straggler_words(found.straggler, duration)
    if found.ranks is None:
        return None
    if len(found.ranks) == 1:
        return "one has a session: which is slowest shows where several have (autobrrr diagnose LAUNCHER)"
    return "which is slowest is not known: their steps were not compared (autobrrr diagnose LAUNCHER)"


def ranks_text(lines: Sequence[RankLine], width: int | None = None) -> str:
    """One line a rank, wrapped to the width."""
    return section_text(section("", ranks_table(lines)), width)


def ranks_table(lines: Sequence[RankLine], straggler: LateRank | None = None) -> PageTable:
    """Each rank's step; its own work and waits where collectives were timed; what makes it late."""
    return PageTable(
        title="",
        heads=("#rank", "~#pid", "~regime", "#step", "#own work", "#waits", "longer in", "cause"),
        rows=[_cells(line, straggler) for line in lines],
    )


def _cells(line: RankLine, straggler: LateRank | None) -> list[Cell]:
    times, regime = line.collectives, str(line.regime or "-")
    if line.confidence == "low" and line.regime not in (None, "unknown", "mixed"):
        regime += " (low)"
    own, waits = (None, None) if times is None else (times.own_ns, times.waits_ns)
    late = straggler is not None and straggler.rank is not None and straggler.rank == line.rank
    cause = cause_words(straggler) if late and straggler is not None else "slowest" if line.slowest else ""
    return [
        *cells(
            "?" if line.rank is None else str(line.rank), "-" if line.pid is None else str(line.pid), regime
        ),
        *(time(line.step_ns), time(own), time(waits)),
        Cell(text=(line.phase or "").replace("_", " ")),
        Cell(text=line.why or cause, tone="worse" if late else ""),
    ]
