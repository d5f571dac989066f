"""How the ranks of one job compare: what each does in a step, and which one the others wait for."""

from __future__ import annotations

from autobrrr.records.record_base import Confidence, Limit, Record, Regime


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
    pid: int
    regime: Regime | None = None
    confidence: Confidence | None = None
    limit: Limit | None = None
    step_ns: int | None = None  # median
    collectives: RankTimes | None = None
    slowest: bool | None = None  # the others wait for it
    why: str | None = None  # it could not be attached to


class SlowestRank(Record, frozen=True, kw_only=True):
    """The rank that the others wait for; `rank` is None where none stands out, and `why` says so."""

    rank: int | None
    pid: int | None
    waited_ns: int | None  # of a step, the others wait so much longer than it does; median over them
    step_ns: int  # median over the ranks
    compared: int  # ranks
    world_size: int | None
    why: str | None = None
