"""Who holds up the ranks, in one sentence; silent where the collectives could not be matched."""

from __future__ import annotations

from autobrrr.quantities import duration, share
from autobrrr.trace.trace_records import RankComparison, Straggler

MOST_OF_IT = 0.75  # of all waiting: those who cause it are named


def rank_sentence(ranks: RankComparison) -> str | None:
    """Who came last, and how long the others waited for it; None where that was not measured.

    Named are the fewest ranks that cause three quarters of all waiting, if they are half of all at most.
    """
    late = [each for each in ranks.ranks if each.late_ns is not None]
    total_ns = sum(each.late_ns or 0 for each in late)
    if len(late) < 2 or total_ns == 0:
        return None
    named: list[Straggler] = []
    for each in sorted(late, key=lambda one: -(one.late_ns or 0)):
        named.append(each)
        if sum(one.late_ns or 0 for one in named) >= MOST_OF_IT * total_ns:
            break
    if len(named) > len(late) // 2:
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
