"""The ranks of a job in words: which one the others wait for, and one line a rank."""

from __future__ import annotations

from collections.abc import Sequence

from autobrrr.quantities import duration
from autobrrr.records import Diagnosis, RankLine
from autobrrr.records.rank_records import straggler_words
from autobrrr.report.text_table import text_table


def ranks_words(found: Diagnosis) -> str | None:
    """Which rank the others wait for, and why, in a sentence; None for a job of one rank."""
    late = found.straggler
    if late is None:
        return _not_compared(found.ranks)
    return straggler_words(late, duration)


def ranks_table(lines: Sequence[RankLine], width: int | None = None) -> str:
    """One line a rank: its pid, its regime, what it waits and works in a step; wrapped to the width."""
    phases = any(line.phase is not None for line in lines)
    rows = [("rank", "pid", "regime", "step", "waits", "own work", *(["slower in"] * phases), "")]
    for line in lines:
        more = [line.phase or ""] * phases
        if line.why is not None:
            rows.append((_number(line), _place(line), "-", "-", "-", "-", *more, line.why))
            continue
        times = line.collectives
        regime: str = line.regime or "-"
        if line.confidence == "low" and line.regime not in (None, "unknown", "mixed"):
            regime += " (low)"
        rows.append(
            (
                _number(line),
                _place(line),
                regime,
                duration(line.step_ns),
                duration(times.waits_ns if times is not None else None),
                duration(times.own_ns if times is not None else None),
                *more,
                "slowest" if line.slowest else "",
            )
        )
    return "\n".join(text_table(rows, width=width, wrap=(6 + phases,), indent=2))


def _not_compared(lines: Sequence[RankLine] | None) -> str | None:
    if lines is None:
        return None
    if len(lines) == 1:
        return "one has a session: which is slowest shows where several have (autobrrr diagnose LAUNCHER)"
    return "which is slowest is not known: their steps were not compared (autobrrr diagnose LAUNCHER)"


def _place(line: RankLine) -> str:
    return "-" if line.pid is None else str(line.pid)


def _number(line: RankLine) -> str:
    return "?" if line.rank is None else str(line.rank)
