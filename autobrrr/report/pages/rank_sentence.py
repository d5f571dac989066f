"""Who holds up the ranks, in one sentence, and whose trace to read first."""

from __future__ import annotations

from autobrrr.quantities import duration, share
from autobrrr.trace.trace_records import Analysis, RankComparison, Straggler, TraceAnalysis

MOST_OF_IT = 0.75  # of all waiting: those who cause it are named


def late_ranks(ranks: RankComparison) -> list[Straggler]:
    """The fewest ranks that cause three quarters of all waiting, if they are half of all at most."""
    total_ns = sum(each.late_ns or 0 for each in ranks.ranks)
    named: list[Straggler] = []
    for each in sorted(ranks.ranks, key=lambda one: -(one.late_ns or 0)):
        if sum(one.late_ns or 0 for one in named) >= MOST_OF_IT * total_ns:
            break
        named.append(each)
    return named if len(named) <= len(ranks.ranks) // 2 else []


def read_first(analysis: Analysis) -> list[TraceAnalysis]:
    """The traces, those of ranks that hold up the others first."""
    late = [] if analysis.ranks is None else [each.file for each in late_ranks(analysis.ranks)]
    return sorted(
        analysis.traces, key=lambda trace: late.index(trace.file) if trace.file in late else len(late)
    )


def rank_sentence(ranks: RankComparison) -> str | None:
    """Who came last, and how long the others waited for it; None where that was not measured."""
    total_ns = sum(each.late_ns or 0 for each in ranks.ranks)
    if total_ns == 0:
        return None
    named = late_ranks(ranks)
    if not named:
        return "No rank holds up the others: all of them come last about as often."
    caused_ns = sum(each.late_ns or 0 for each in named)
    names = [str(each.rank) if each.rank is not None else each.file for each in named]
    who = (
        f"Rank {names[0]} holds" if len(names) == 1 else f"Ranks {', '.join(names[:-1])} and {names[-1]} hold"
    )
    came = sum(each.last_in or 0 for each in named)
    return (
        f"{who} up the others: {came} of {ranks.matched_collectives} collectives wait for "
        f"{'it' if len(names) == 1 else 'them'}, {share(caused_ns / total_ns)} of all waiting "
        f"({duration(caused_ns)} over all ranks)."
    )
