"""How the ranks of one job compare: what each does in a step, which one the others wait for; in words too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from autobrrr.quantities import duration
from autobrrr.records.record_base import Confidence, Limit, Record, Regime

LateCause = Literal[
    "loader",  # it waits for data
    "forward",
    "backward",
    "optimizer",
    "own_code",  # between loading, forward, backward and optimizer: checkpoints, logging, metrics
    "garbage_collection",
    "cpu_taken",  # its training thread waits for a CPU
    "cpu_cap",  # the same, for the CPU limit of its control group
    "host",  # its Python and launches, on a device
    "kernels",  # its device's work
    "uneven_data",  # more samples or tokens than the others
    "collectives",  # no rank: the collectives themselves
    "synced_backwards",  # no rank: gradients are exchanged after each of several backwards in a step
]
NoneLate = Literal[
    "alike",
    "collectives",  # all of them wait, for no rank
    "in_turn",  # now this one, now that one
    "several",  # more than one at a time
    "unsettled",  # one is late at times, too few or too different ones to name it
    "incomplete",  # one that was not compared may be later
    "synced_backwards",  # several in a step, of which the waits of one are known
    "too_few_steps",  # that were timed on all ranks
    "on_device",  # whose steps are not compared
]


class RankTimes(Record, frozen=True, kw_only=True):
    """The step of one rank, by the steps in which its collectives were timed; medians."""

    steps: int
    step_ns: int
    waits_ns: int  # in collectives that nothing hides
    own_ns: int  # all else
    error_ns: int  # standard error of both


class RankLine(Record, frozen=True, kw_only=True):
    """One rank of a job; None is "not measured"."""

    rank: int | None
    pid: int | None
    regime: Regime | None = None
    confidence: Confidence | None = None
    limit: Limit | None = None
    step_ns: int | None = None  # median
    collectives: RankTimes | None = None
    slowest: bool | None = None  # the others wait for it
    why: str | None = None  # it could not be attached to
    host: str | None = None
    device: str | None = None  # type of its parameters' device
    own_by_phase_ns: dict[str, int] = {}  # of the steps that all ranks timed, without collectives; medians
    phase: str | None = None  # that takes it longer than the others, by a tenth of the step or more


class LateRank(Record, frozen=True, kw_only=True):
    """The rank that comes last to the collectives, by steps that all ranks timed at once, and why it does.

    `rank` is None where none does, and `why` says so. `cause` and `phase` are None where they are not known.
    """

    rank: int | None
    pid: int | None
    why: NoneLate | None = None
    cause: LateCause | None = None
    phase: str | None = None  # data_wait, forward, backward, optimizer, other
    when: Literal["always", "now_and_then"] | None = None
    one_in: float | None = None  # steps, where it is now and then
    costs_ns: int | None = None  # a mean step would be so much shorter if no rank were later than the next
    step_ns: int | None = None  # mean
    steps: int = 0  # that were compared
    compared: int = 0  # ranks
    world_size: int | None = None


class RanksCompared(Record, frozen=True, kw_only=True):
    """What came of one comparison of the ranks of a job; the same in the session of each."""

    straggler: LateRank
    ranks: list[RankLine]


CAUSES: Final[Mapping[LateCause, str]] = {
    "loader": "it waits for data",
    "forward": "its forward takes longer, or what it does between forward and backward",
    "backward": "its backward takes longer",
    "optimizer": "its optimizer takes longer",
    "own_code": "code of its own runs beside loading, forward, backward and optimizer",
    "garbage_collection": "Python collects garbage in it",
    "cpu_taken": "its training thread waits for a CPU",
    "cpu_cap": "the CPU limit of its control group stops it",
    "host": "its Python takes longer",
    "kernels": "its device takes longer",
    "uneven_data": "it has more data than the others",
    "collectives": "they take that long by themselves",
    "synced_backwards": "gradients are exchanged after each of several backwards in a step",
}
NO_RANK: Final[Mapping[NoneLate, str]] = {
    "alike": "none is slower than the others: their own work takes equally long",
    "collectives": "none is slower than the others: collectives themselves take {cost} of a mean {step} step",
    "in_turn": "now one is slower, now another: they wait for each other {cost} of a mean {step} step",
    "several": "more than one is slower than the others, which wait {cost} of a mean {step} step",
    "unsettled": "none is always slower: their own work differs, by {cost} of a mean {step} step",
    "incomplete": "which is slowest is not known: a rank that was not compared may be slower",
    "synced_backwards": "which is slowest is not known: gradients are exchanged after each of several "
    "backwards in a step (with model.no_sync() after the last one only)",
    "too_few_steps": "which is slowest is not known: too few steps could be compared",
    "on_device": "which is slowest is not known: steps on a device are not compared",
}


def cause_words(late: LateRank) -> str:
    """Why the rank is late."""
    return "why is not known" if late.cause is None else CAUSES[late.cause]


def late_words(late: LateRank) -> str:
    """Which rank is slowest and why, in a few words; nothing where none is named."""
    if late.rank is None:
        return ""
    return f"rank {late.rank} is slowest{_when_words(late)}: {cause_words(late)}"


def _when_words(late: LateRank) -> str:
    return "" if late.one_in is None else f", in one of {late.one_in:.0f} steps"


def _of_words(late: LateRank) -> str:
    """How many ranks were compared, where not all were; silent where fewer than two could be."""
    if late.compared == late.world_size or late.compared < 2:
        return ""
    of = "" if late.world_size is None else f" of {late.world_size}"
    return f" ({late.compared}{of} ranks compared)"


def straggler_words(late: LateRank) -> str:
    """Which rank the others wait for, and why, or why none is named."""
    numbers = {"cost": duration(late.costs_ns), "step": duration(late.step_ns)}
    if late.why is not None:
        more = "; the one with more data comes last" if late.cause == "uneven_data" else ""
        return NO_RANK[late.why].format(**numbers) + more + _of_words(late)
    costs = f"the others wait {numbers['cost']} of a mean {numbers['step']} step for it"
    if late.costs_ns is None:  # by the limits of ranks on devices
        costs = "the others wait for it in collectives"
    return f"rank {late.rank} is slowest{_of_words(late)}{_when_words(late)}: {costs}; {cause_words(late)}"
