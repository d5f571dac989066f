"""Which rank of a job the others wait for: the one that waits least itself, and works longest.

In: each rank's own time and waits, measured while no other rank was. Out: that rank, or why none stands
out. Nothing is said of a single one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median, quantiles

from autobrrr.diagnosis import thresholds
from autobrrr.records import CollectiveWaits, RankLine, RankTimes, SlowestRank

_SIGMA = 1.349  # interquartile range of a normal distribution
_OF_MEDIAN = 1.2533  # standard error of a median over that of a mean


def rank_times(waits: CollectiveWaits | None) -> RankTimes | None:
    """Medians of the timed steps; None where too few were timed."""
    if waits is None or waits.status != "ok" or len(waits.step_ns) < thresholds.COLLECTIVE_STEPS:
        return None
    if len(waits.exposed_ns) != len(waits.step_ns):
        return None
    own_ns = [step - wait for step, wait in zip(waits.step_ns, waits.exposed_ns, strict=True)]
    width = max(_middle_half(own_ns), _middle_half(waits.exposed_ns))
    return RankTimes(
        steps=len(own_ns),
        step_ns=int(median(waits.step_ns)),
        waits_ns=int(median(waits.exposed_ns)),
        own_ns=int(median(own_ns)),
        error_ns=int(_OF_MEDIAN * width / _SIGMA / len(own_ns) ** 0.5),
    )


def slowest_rank(lines: Sequence[RankLine], world_size: int | None) -> SlowestRank | None:
    """The rank that the others wait for.

    Returns:
        None where fewer than two ranks were timed: that is not measured.
    """
    known = {line.pid: line.collectives for line in lines if line.collectives is not None}
    if len(known) < 2:
        return None
    first, second = sorted(known, key=lambda pid: known[pid].waits_ns)[:2]
    step_ns = int(median(times.step_ns for times in known.values()))
    rank = next(line.rank for line in lines if line.pid == first)
    why = _alike(known, first, second, step_ns)
    if why is None and (world_size is None or len(known) < world_size):
        why = _slower_one_missing(known[first], rank, step_ns)
    named = why is None
    more_ns = [times.waits_ns - known[first].waits_ns for pid, times in known.items() if pid != first]
    return SlowestRank(
        rank=rank if named else None,
        pid=first if named else None,
        waited_ns=int(median(more_ns)) if named else None,
        step_ns=step_ns,
        compared=len(known),
        world_size=world_size,
        why=why,
    )


def _alike(known: Mapping[int, RankTimes], first: int, second: int, step_ns: int) -> str | None:
    """Why the rank that waits least is not told from the next one; None where it is, and works longest.

    Ranks wait for each other in every step: by as much as their steps differ in length, the job has changed
    between one rank's timing and the other's, and the difference of their waits may be wrong by as much.
    """
    least, next_one = known[first], known[second]
    noise_ns = thresholds.RANK_ERRORS * (least.error_ns**2 + next_one.error_ns**2) ** 0.5
    needed_ns = max(thresholds.RANK_LEAD * step_ns, noise_ns)
    lead_ns = next_one.waits_ns - least.waits_ns
    lengths = [times.step_ns for times in known.values()]
    drift_ns = max(lengths) - min(lengths)
    longest_ns = max(times.own_ns for times in known.values())
    if lead_ns < needed_ns:
        return "all of them wait alike"
    if lead_ns < needed_ns + drift_ns or least.own_ns + drift_ns < longest_ns:
        return "their steps were of different lengths when they were timed: the job has changed in between"
    return None


def _slower_one_missing(least: RankTimes, rank: int | None, step_ns: int) -> str | None:
    if least.waits_ns <= thresholds.RANK_WAITS_LITTLE * step_ns:
        return None
    return (
        f"rank {rank} waits least, but {100 * least.waits_ns / step_ns:.0f} % of the step itself: "
        "a rank without a session may be slower"
    )


def _middle_half(values: Sequence[int]) -> float:
    low, _, high = quantiles(values, n=4, method="inclusive")
    return high - low
