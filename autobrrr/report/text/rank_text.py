"""The ranks of a job in words: which one the others wait for, and one line a rank."""

from __future__ import annotations

from collections.abc import Sequence

from autobrrr.records import Diagnosis, RankLine
from autobrrr.report.quantities import duration
from autobrrr.report.text_table import text_table


def slowest_words(found: Diagnosis) -> str | None:
    """Which rank the others wait for, in a sentence; None for a job of one rank, or where nobody asked."""
    slowest = found.slowest
    if slowest is None:
        return _not_compared(found.ranks)
    if slowest.rank is None:
        return f"none is slower than the others: {slowest.why}"
    of = f" (of the {slowest.compared} timed)" if slowest.compared != slowest.world_size else ""
    this = ", this one," if slowest.pid == found.pid else ""
    waits = f"{duration(slowest.waited_ns)} of each {duration(slowest.step_ns)} step"
    return f"rank {slowest.rank}{this} is slowest{of}: the others wait {waits} for it"


def ranks_table(lines: Sequence[RankLine], width: int | None = None) -> str:
    """One line a rank: its pid, its regime, what it waits and works in a step; wrapped to the width."""
    rows = [("rank", "pid", "regime", "step", "waits", "own work", "")]
    for line in lines:
        if line.why is not None:
            rows.append((_number(line), str(line.pid), "-", "-", "-", "-", line.why))
            continue
        times = line.collectives
        regime: str = line.regime or "-"
        if line.confidence == "low" and line.regime not in (None, "unknown", "mixed"):
            regime += " (low)"
        rows.append(
            (
                _number(line),
                str(line.pid),
                regime,
                duration(line.step_ns),
                duration(times.waits_ns if times is not None else None),
                duration(times.own_ns if times is not None else None),
                "slowest" if line.slowest else "",
            )
        )
    return "\n".join(text_table(rows, width=width, wrap=(6,), indent=2))


def _not_compared(lines: Sequence[RankLine] | None) -> str | None:
    if lines is None:
        return None
    if len(lines) == 1:
        return "one has a session: which is slowest shows where several have (autobrrr diagnose LAUNCHER)"
    timed = sum(line.collectives is not None for line in lines)
    return f"which is slowest is not known: collectives were timed in {timed} of {len(lines)}"


def _number(line: RankLine) -> str:
    return "?" if line.rank is None else str(line.rank)
