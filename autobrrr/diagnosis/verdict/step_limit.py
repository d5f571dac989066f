"""Who limits the step of a live job: the first level of its verdict, an identity of the step's own clock.

The shares of the step are summed by who they belong to. One of them limits the step where it takes
half of it, leads clearly, and what was not measured can't be its rival. That can be sure where the
regime below it is a mixture: kernels of two kinds are kernels all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from autobrrr.diagnosis import thresholds
from autobrrr.diagnosis.ledger import collecting_line, wheres
from autobrrr.diagnosis.measurements import Measurements
from autobrrr.diagnosis.models.cpu_delay import outnumber
from autobrrr.diagnosis.models.leading import delayed_most, leads_the_rest, limit_leads, measured_shares
from autobrrr.diagnosis.models.shares import (
    fed_share,
    garbage_share,
    kernels_between,
    short_calls,
    short_dispatch,
    step_parts,
)
from autobrrr.diagnosis.models.window_parts import window_parts
from autobrrr.diagnosis.part_names import WORDS, listed, no_single
from autobrrr.diagnosis.robust_stats import of_one
from autobrrr.diagnosis.verdict.agreement import opposed, within
from autobrrr.diagnosis.verdict.undecided_reason import JudgedCase, slow_in_many_threads, why_foreign
from autobrrr.records import LIMIT_OF_REGIME, NAMES_NOBODY, Confidence, Limit, Regime, SettingFact

WINDOW = "profiler_window"
CLOCK_OF: Final[Mapping[Limit, str]] = {  # whose guards a share has passed
    "host": "traced_steps",
    "kernels": "traced_steps",
    "input": "loader_wait",
    "communication": "collective_wait",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Second:
    """A signal read off something else, which makes a limit sure: by what it says, or by its value."""

    signal: str
    says: tuple[Regime, ...] = ()
    within: tuple[float, float] | None = None


SECONDS: Final[Mapping[str, tuple[Second, ...]]] = {
    "host": (
        Second(signal="batch_probe", says=("overhead",)),
        Second(signal="op_cost", says=("overhead",)),
        Second(signal="host_frames", says=("host",)),
    ),
    "kernels": (
        Second(signal="traffic", says=("memory",)),
        Second(signal="matmul_rate", says=("compute",)),
        Second(signal="batch_probe", within=(0.0, thresholds.PROBE_GROWS)),
        Second(signal="op_cost", within=(0.0, thresholds.EXCLUDED_AT)),
    ),
    "input": (
        Second(signal="loader_queue", says=("input",)),
        Second(signal="loader_frames", says=("input",)),
    ),
    "communication": (Second(signal="blocked_thread", says=("communication",)),),
}

BESIDE_A_WINDOW: Final[Mapping[str, tuple[Second, ...]]] = {  # which sees a few steps; stacks see them all
    "host": (Second(signal="host_frames", says=("host",)),),
    "kernels": (Second(signal="host_frames", within=(0.0, thresholds.EXCLUDED_AT)),),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimit:
    """Who limits the step, and the shares of all who could."""

    limit: Limit
    confidence: Confidence
    shares: Mapping[str, float]


def step_limit(case: JudgedCase, regime: Regime, confidence: Confidence) -> StepLimit:
    """Who limits the step; never against a regime that two signals carry.

    Args:
        regime: The second level, as judged.
        confidence: Its own.
    """
    shares = limit_shares(case)
    again = recompiling(case.measured)
    if again is not None and again.value >= thresholds.NAMED_AT:
        return StepLimit(limit="recompilation", confidence="high", shares=shares)
    garbage, sampled = garbage_share(case.measured), case.measured.phases
    if garbage is not None and sampled is not None and garbage >= thresholds.NAMED_AT:
        exact = sampled.steps >= thresholds.SAMPLED_STEPS  # by the collector's own clock: one is enough
        return StepLimit(limit="garbage", confidence="high" if exact else "low", shares=shares)
    if regime not in NAMES_NOBODY:
        limit = LIMIT_OF_REGIME[regime]
        sure = confidence == "high" or (limit_leads(limit, shares) and _firm(case, limit, shares))
        return StepLimit(limit=limit, confidence="high" if sure else "low", shares=shares)
    named = _named(case, shares) or _in_long_steps(case)
    if named is None:
        return StepLimit(limit="mixed" if regime == "mixed" else "unknown", confidence="low", shares=shares)
    return StepLimit(limit=named, confidence="high" if _firm(case, named, shares) else "low", shares=shares)


def recompiling(measured: Measurements) -> SettingFact | None:
    """Of the last minute, what went into compiling functions that were compiled before."""
    return next((fact for fact in measured.settings if fact.name == "recompiles"), None)


def limit_shares(case: JudgedCase) -> dict[str, float]:
    """The step by who holds it up; empty where it was not divided."""
    found: dict[str, float] = {}
    for regime, share in measured_shares(case.shares).items():
        limit = LIMIT_OF_REGIME.get(regime, "other")
        found[limit] = found.get(limit, 0.0) + share
    unclear, _ = _in_short_calls(case)
    window = window_parts(case.measured)
    if window is not None:
        found |= {"kernels": sum(window.kernels.values()), "short": window.short, "other": 0.0}
        found["other"] = max(0.0, 1 - sum(found.values()))
    elif unclear:
        found["kernels"] -= unclear
        found["short"] = unclear
    return found


def _in_short_calls(case: JudgedCase) -> tuple[float, float]:
    """Share of the step in calls so short that it may be dispatch, and in those that are the host's for sure.

    One of them is 0: time that doesn't grow with the batch is spent on the way to short kernels.
    """
    parts = step_parts(case.measured)
    if parts is None or (not case.shares.underfilled and not case.shares.overhead):
        return 0.0, 0.0
    dispatch = short_dispatch(case.measured, parts)
    return (0.0, dispatch) if dispatch else (short_calls(case.measured, parts), 0.0)


def limit_sentence(found: StepLimit, case: JudgedCase, undecided: str) -> str:
    """What the limit consists of: `76 % matrix products, 10 % kernels that move tensors`.

    Args:
        undecided: Why nothing is named, for where that is so.
    """
    if found.limit == "unknown":
        return undecided
    if found.limit == "mixed":
        if any(limit_leads(name, found.shares) for name in found.shares):
            return undecided  # one does, and another signal contradicts it
        return no_single(found.shares) or undecided
    again = recompiling(case.measured)
    if found.limit == "recompilation" and again is not None:
        return f"torch.compile compiles anew for {of_one(again.value)} of the time: {again.detail}"
    if found.limit == "garbage":
        at = collecting_line(case.measured)
        called = f", called at {at}" if at else ""
        return f"the garbage collector takes {of_one(garbage_share(case.measured) or 0.0)} of a step{called}"
    if not limit_leads(found.limit, found.shares) and _in_long_steps(case) == found.limit:
        return case.readings["uneven_steps"].note
    parts = measured_shares(case.shares)
    held = [(share, WORDS[name]) for name, share in parts.items() if LIMIT_OF_REGIME.get(name) == found.limit]
    unclear, dispatch = _in_short_calls(case)
    window = window_parts(case.measured)
    if window is not None and found.limit == "kernels":
        return listed((share, words) for words, share in window.kernels.items())
    less = {WORDS["underfilled"]: unclear, WORDS["overhead"]: dispatch}
    held = [(share - less.get(words, 0.0), words) for share, words in held]
    if dispatch:
        held.append((dispatch, "short operators that don't grow with the batch"))
    return f"{listed(held)}{_outside_the_model(found, case)}"


def _outside_the_model(found: StepLimit, case: JudgedCase) -> str:
    """Where kernels are not the model's: a metric's, between the phases."""
    if found.limit != "kernels" or not kernels_between(case.measured):
        return ""
    at = next((row.place for row in wheres(case.measured) if row.phase == "other"), None)
    return f", between the phases{f' at {at}' if at else ''}"


def _named(case: JudgedCase, shares: Mapping[str, float]) -> Limit | None:
    """The one who limits, where no pair of signals carries a regime."""
    if why_foreign(case.measured) is not None or case.busy >= thresholds.WITHHELD_AT or not shares:
        return None
    first = max(shares, key=lambda name: shares[name])
    limit = next((name for name in CLOCK_OF if name == first), None)
    delay = max(case.waited, case.delay(first))
    delayed = delayed_most(first, shares, delay)
    if limit is None or not limit_leads(limit, delayed) or _doubted(case, limit):
        return None
    return limit if leads_the_rest(limit, delayed, delay) else None


def _in_long_steps(case: JudgedCase) -> Limit | None:
    """Who has the long steps that take half of the time: by the stacks, for few of them are sampled."""
    uneven = case.readings["uneven_steps"].value or 0.0
    if uneven < thresholds.NAMED_AT or case.busy >= thresholds.BUSY_AT or why_foreign(case.measured):
        return None
    firm = [case.readings[name] for name in ("host_frames", "loader_frames") if case.readings[name].firm]
    return next((LIMIT_OF_REGIME[one.says] for one in firm if one.says is not None), None)


def _doubted(case: JudgedCase, limit: Limit) -> bool:
    """Whether the clock behind a share abstains, or another signal contradicts it."""
    readings = case.readings
    clock = _clock(case, limit)
    if readings["oversubscription"].says is not None or readings[clock].abstained:
        return True
    # Traced steps speak of the usual step alone, a window of four; stacks are sampled over all the time.
    most = thresholds.EXCLUDED_AT if clock == WINDOW else thresholds.NAMED_AT
    uneven = (readings["uneven_steps"].value or 0.0) >= most
    stacks_agree = limit == "host" and readings["host_frames"].says == "host"
    if uneven and limit in ("host", "kernels") and not stacks_agree:
        return True
    window = window_parts(case.measured)
    if clock == WINDOW and window is not None:
        unseen = {"loader_frames": case.shares.input, "host_frames": limit_shares(case).get("host")}
        beyond = [(readings[stacks].value or 0.0) - (share or 0.0) for stacks, share in unseen.items()]
        # Neither user's code nor dispatch: what no operator shows may compute all the same, or sleep.
        strange = (
            limit == "host" and not stacks_agree and window.calls < thresholds.EXPLAINED_AT * window.host
        )
        return strange or max(beyond) >= thresholds.LEAD or outnumber(case.measured)
    if limit == "kernels":  # counted calls leave no room for so much time in kernels, or they may be waits
        crowded_out = (readings["op_cost"].value or 0.0) >= thresholds.NAMED_AT
        return crowded_out or slow_in_many_threads(case) is not None
    if limit == "host":
        return any(one.signal != clock for one in opposed(readings, "overhead")) and (
            (case.shares.overhead or 0.0) >= (case.shares.host or 0.0)
        )
    return False


def _firm(case: JudgedCase, limit: Limit, shares: Mapping[str, float]) -> bool:
    if not case.is_steady(limit) or limit not in CLOCK_OF:
        return False
    if case.readings[clock := _clock(case, limit)].abstained:
        return False
    if clock == WINDOW:  # whose shares are the least that they can be
        return any(_agrees(case, one) for one in BESIDE_A_WINDOW[limit])
    return shares.get(limit, 0.0) - _inferred(case, limit) >= thresholds.LIMIT_FIRM_AT and any(
        _agrees(case, one) for one in SECONDS[limit]
    )


def _clock(case: JudgedCase, limit: Limit) -> str:
    """The signal whose guards a share has passed."""
    profiled = limit in BESIDE_A_WINDOW and window_parts(case.measured) is not None
    return WINDOW if profiled else CLOCK_OF[limit]


def _inferred(case: JudgedCase, limit: Limit) -> float:
    """The part of a share that rests on a signal which may also be the second one."""
    if limit == "host":
        return _in_short_calls(case)[1]
    parts = step_parts(case.measured)
    return fed_share(case.measured, parts) if limit == "input" and parts is not None else 0.0


def _agrees(case: JudgedCase, second: Second) -> bool:
    reading = case.readings[second.signal]
    if second.within is not None:
        return within(reading, second.within)
    return not reading.abstained and reading.says in second.says
