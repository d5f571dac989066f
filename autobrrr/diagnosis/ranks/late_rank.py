"""Which rank of a job keeps the others waiting, in which phase, and why; by steps that all ranks timed.

In: each rank's timed steps and what /proc shows of it. A rank is late by what its own work, without
collectives, takes more than that of the next slowest. Always: in three of four steps, and by a tenth of the
step in both halves of the time. Now and then: in a few steps by far more. Out: one rank with phase and cause,
as far as they are known, or why none is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.ranks.rank_steps import PHASES, RankSteps, Times, same_steps
from autobrrr.records import CollectiveWaits, HostSample, LateCause, LateRank, NoneLate

_CAUSE_OF_PHASE: dict[str, LateCause] = {
    "data_wait": "loader",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "other": "own_code",
}
_MODEL = ("forward", "backward")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRank:
    """One rank, as its session saw it."""

    rank: int | None
    pid: int
    timed: CollectiveWaits
    host: HostSample | None = None
    device: str | None = None  # type of its parameters' device


Reason = tuple[LateCause | None, str | None]  # cause, phase
UNKNOWN: Reason = (None, None)


def late_rank(ranks: Sequence[TimedRank], world_size: int | None) -> LateRank | None:
    """The rank that the others wait for.

    Returns:
        None where fewer than two ranks were timed: that is not measured.
    """
    if len(ranks) < 2:
        return None
    steps = same_steps([each.timed for each in ranks])
    if steps is None:
        on_device = any(each.device not in (None, "cpu") for each in ranks)
        found = LateRank(rank=None, pid=None, why="on_device" if on_device else "too_few_steps")
    else:
        found = _named(steps, ranks, all_there=len(ranks) == world_size)
    return msgspec.structs.replace(found, compared=len(ranks), world_size=world_size)


def _named(steps: RankSteps, ranks: Sequence[TimedRank], *, all_there: bool) -> LateRank:
    if float((steps.reduced > 1).mean()) >= thresholds.REDUCED_AGAIN:  # one of its waits is known, not all
        return _nobody("synced_backwards", steps, "synced_backwards")
    late_ns = steps.own_ns - _most_of_others(steps.own_ns)
    who, bursts = _always(steps, late_ns), None
    if who is not None:
        reason = _usual_reason(steps, who, late_ns[who], ranks[who].host)
    else:
        found = _now_and_then(steps)
        if found is None:
            return _no_rank(steps)
        who, bursts, reason = found
    waits = float(steps.waits_ns[who].mean() / steps.step_ns.mean())
    if not all_there and waits > thresholds.RANK_WAITS_LITTLE:
        return _nobody("incomplete", steps)
    return LateRank(
        rank=ranks[who].rank,
        pid=ranks[who].pid,
        cause=reason[0],
        phase=reason[1],
        when="always" if bursts is None else "now_and_then",
        one_in=None if bursts is None else round(len(bursts) / int(bursts.sum()), 1),
        costs_ns=int(np.maximum(late_ns[who], 0.0).mean()),
        step_ns=int(steps.step_ns.mean()),
        steps=steps.step_ns.shape[1],
    )


def longer_phases(timed: Sequence[CollectiveWaits]) -> list[str | None]:
    """Of each rank the phase that takes it longer than the others, by a tenth of the step or more."""
    steps = same_steps(timed)
    if steps is None:
        return [None] * len(timed)
    found: list[str | None] = []
    beyond = {name: np.median(_beyond(column), axis=1) for name, column in steps.by_phase_ns.items()}
    for who in range(len(timed)):
        more = {name: column[who] for name, column in beyond.items()}
        name = max(more, key=lambda each: more[each], default=None)
        long = max(more.values(), default=0.0) >= thresholds.RANK_LEAD * steps.usual_step_ns
        found.append(name if name is not None and long and _is_known(name, steps) else None)
    return found


def _always(steps: RankSteps, late_ns: Times) -> int | None:
    who = int(np.median(late_ns, axis=1).argmax())
    own = late_ns[who]
    needed_ns = thresholds.RANK_LEAD * steps.usual_step_ns
    halves = np.array_split(own, 2)
    long = all(float(np.median(half)) >= needed_ns for half in halves)
    return who if long and float((own > 0).mean()) >= thresholds.RANK_LAST_IN else None


def _now_and_then(steps: RankSteps) -> tuple[int, NDArray[np.bool_], Reason] | None:
    """A rank with steps that are far longer than its others, in one phase, and hardly any other rank has."""
    own_ns = steps.own_ns - steps.delay_ns  # a thread that is preempted now and then says nothing of its job
    over_ns = own_ns - np.median(own_ns, axis=1, keepdims=True)
    low_ns, high_ns = np.quantile(own_ns, (0.25, 0.75), axis=1)
    spread_ns = float((high_ns - low_ns).max())  # of work that varies anyhow, as that on data of many lengths
    needed_ns = max(thresholds.RANK_BURST * steps.usual_step_ns, thresholds.RANK_BURST_SPREADS * spread_ns)
    events = over_ns - np.maximum(_most_of_others(over_ns), 0.0) >= needed_ns
    counts = events.sum(axis=1)
    who = int(counts.argmax())
    count = int(counts[who])
    costs_ns = float(over_ns[who][events[who]].sum()) / steps.step_ns.shape[1]
    rare = count <= thresholds.RANK_BURSTS_FEW * len(events[who])
    lasting = all(bool(half.any()) for half in np.array_split(events[who], 2))
    if (
        not (rare and lasting)
        or count < thresholds.RANK_BURSTS
        or count < thresholds.RANK_BURSTS_ALONE * int(counts.sum())
        or costs_ns < thresholds.RANK_BURSTS_COST * float(steps.step_ns.mean())
    ):
        return None
    bursts = events[who]
    in_phase = {
        name: (column[who] - np.median(column[who]))[bursts] for name, column in steps.by_phase_ns.items()
    }
    if not in_phase:
        return None
    order = list(in_phase)
    longest = np.stack([in_phase[name] for name in order]).argmax(axis=0)
    often = int(np.bincount(longest).argmax())
    if float((longest == often).mean()) < thresholds.RANK_BURSTS_ALONE:
        return None  # chance, not a thing that the script does
    garbage = steps.garbage_ns[who][bursts]
    if float(np.median(garbage / over_ns[who][bursts])) >= thresholds.EXPLAINED_AT:
        return who, bursts, ("garbage_collection", None)
    return who, bursts, _of_phase(order[often], steps)


def _usual_reason(steps: RankSteps, who: int, late_ns: Times, host: HostSample | None) -> Reason:
    """Why a rank is late in its usual steps, those of the middle four fifths."""
    low, high = np.quantile(late_ns, (0.1, 0.9))
    usual = (late_ns >= low) & (late_ns <= high)
    more_ns = float(_beyond(steps.own_ns)[who][usual].mean())
    if more_ns <= 0:
        return UNKNOWN
    part = {name: float(_beyond(of)[who][usual].mean()) / more_ns for name, of in steps.by_phase_ns.items()}
    phase = max(part, key=lambda each: part[each], default=None)
    named = UNKNOWN
    if phase is not None and part[phase] >= thresholds.RANK_IN_PHASE:
        named = _of_phase(phase, steps)
    if float(_beyond(steps.garbage_ns)[who][usual].mean()) >= thresholds.EXPLAINED_AT * more_ns:
        return "garbage_collection", named[1]
    delayed_ns = float(_beyond(steps.delay_ns)[who][usual].mean())
    if delayed_ns >= thresholds.EXPLAINED_AT * more_ns:
        return _cpu_cause(delayed_ns / steps.usual_step_ns, host), named[1]
    in_model = sum(part.get(name, 0.0) for name in _MODEL)
    if in_model >= thresholds.RANK_IN_PHASE and _has_more_data(steps, who):
        return "uneven_data", named[1]
    return named


def _of_phase(phase: str, steps: RankSteps) -> Reason:
    return (_CAUSE_OF_PHASE[phase], phase) if _is_known(phase, steps) else UNKNOWN


def _is_known(phase: str, steps: RankSteps) -> bool:
    """What is not measured apart lies in `other`: then that is no phase of its own."""
    return phase != "other" or len(steps.by_phase_ns) == len(PHASES)


def _cpu_cause(delayed: float, host: HostSample | None) -> LateCause | None:
    """Who keeps its thread from a CPU: the cap of its group, or others, as far as they ran there."""
    if host is not None and (host.throttled_share or 0.0) >= thresholds.EXPLAINED_AT * delayed:
        return "cpu_cap"
    others = None if host is None else host.foreign_cores
    return None if others is not None and others < thresholds.EXPLAINED_AT * delayed else "cpu_taken"


def _has_more_data(steps: RankSteps, who: int) -> bool:
    """Whether its batches are larger by at least half of what its forward and backward are longer."""
    work = sum(steps.by_phase_ns[name] for name in _MODEL if name in steps.by_phase_ns)
    for data in (steps.tokens, steps.samples):
        if bool((data > 0).all()):
            more = float(data[who].sum() / _others(data)[who].sum()) - 1
            longer = float(np.asarray(work)[who].sum() / max(1.0, _others(np.asarray(work))[who].sum())) - 1
            if more >= thresholds.MORE_DATA and more >= thresholds.EXPLAINED_AT * longer:
                return True
    return False


def _no_rank(steps: RankSteps) -> LateRank:
    """Why no rank is named, though they may wait for each other."""
    step_ns = float(steps.step_ns.mean())
    lost_ns = _lost(steps.own_ns)
    if lost_ns >= thresholds.RANK_LEAD * step_ns:
        why = _why_differing(steps, lost_ns)
        cause: LateCause | None = "uneven_data" if why == "in_turn" and _follows_data(steps) else None
        return _nobody(why, steps, cause, lost_ns)
    shared_ns = float(steps.waits_ns.min(axis=0).mean())
    if shared_ns >= thresholds.EXCLUDED_AT * step_ns:
        return _nobody("collectives", steps, "collectives", shared_ns)
    return _nobody("alike", steps)


def _why_differing(steps: RankSteps, lost_ns: float) -> NoneLate:
    """Why no rank is named, where their own work differs."""
    if (
        _lost(steps.own_ns - np.median(steps.own_ns, axis=1, keepdims=True))
        < thresholds.EXPLAINED_AT * lost_ns
    ):
        return "several"
    late = steps.own_ns - _most_of_others(steps.own_ns) >= thresholds.RANK_LEAD * steps.usual_step_ns
    counts = late.sum(axis=1)
    return "in_turn" if int(counts.max()) <= thresholds.RANK_LAST_IN * int(counts.sum()) else "unsettled"


def _lost(own_ns: Times) -> float:
    """What a mean step would be shorter if all ranks had the same work."""
    return float((own_ns.max(axis=0) - own_ns.mean(axis=0)).mean())


def _follows_data(steps: RankSteps) -> bool:
    """Whether the rank with most data is the last one, in the steps in which it has clearly more."""
    for data in (steps.tokens, steps.samples):
        if not bool((data > 0).all()):
            continue
        ordered = np.sort(data, axis=0)
        clear = ordered[-1] >= (1 + thresholds.MORE_DATA) * ordered[-2]
        follows = data.argmax(axis=0) == steps.own_ns.argmax(axis=0)
        if int(clear.sum()) >= thresholds.COMPARED_STEPS:
            return float(follows[clear].mean()) >= thresholds.RANK_LAST_IN
    return False


def _nobody(
    why: NoneLate, steps: RankSteps, cause: LateCause | None = None, costs_ns: float | None = None
) -> LateRank:
    return LateRank(
        rank=None,
        pid=None,
        why=why,
        cause=cause,
        costs_ns=None if costs_ns is None else int(costs_ns),
        step_ns=int(steps.step_ns.mean()),
        steps=steps.step_ns.shape[1],
    )


def _most_of_others(values: Times) -> Times:
    """Of each rank and step, the most that any other rank has; shape [ranks, steps]."""
    ordered = np.sort(values, axis=0)
    is_most = np.arange(len(values))[:, None] == values.argmax(axis=0)
    return np.asarray(np.where(is_most, ordered[-2], ordered[-1]))


def _others(values: Times) -> Times:
    """Of each rank and step, the median of the other ranks; shape [ranks, steps]."""
    ordered = np.sort(values, axis=0)
    place = values.argsort(axis=0).argsort(axis=0)
    others = len(values) - 1
    middle = [np.where(place > at, ordered[at], ordered[at + 1]) for at in ((others - 1) // 2, others // 2)]
    return np.asarray((middle[0] + middle[1]) / 2)


def _beyond(values: Times) -> Times:
    """What each rank has more than the others; shape [ranks, steps]."""
    return np.asarray(values - _others(values))
