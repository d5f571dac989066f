"""One proof from beginning to end: the work of both is counted, then their speed is measured.

In: how both sides are started, a gate, a time. Out: a `Proof`. What is not the same work is refused before
anything is timed.
"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from autobrrr.prove.audit_runs import LEAST_COMPARED, accounts_of
from autobrrr.prove.parting import sameness
from autobrrr.prove.run_account import RunAccount
from autobrrr.prove.start_statistics import ALPHA, gain_interval, is_look, noise_half, spent
from autobrrr.prove.timed_turns import TimedTurns
from autobrrr.prove.work_rules import refusals, work_done
from autobrrr.records import ExactnessClass
from autobrrr.records.gain_words import gain_words
from autobrrr.records.proof_records import (
    Proof,
    ProofSpeed,
    ProofVerdict,
    ProofWork,
    RefusedWork,
    Sameness,
    WorkRefusal,
)
from autobrrr.relaunch.trial.trial_factory import TrialFactory
from autobrrr.relaunch.trial.trial_launch import TrialLaunch
from autobrrr.tuner.confidence_sequence import Interval

BUDGET_NS = 120_000_000_000
AUDIT_SHARE = 0.2
FEWEST_STARTS = 2
PATIENCE = 2  # times the budget, until there are as many
OTHERWISE = 0.02
ACCEPTED = (
    WorkRefusal.LOWER_PRECISION,
    WorkRefusal.FEWER_OPERATIONS,
    WorkRefusal.OTHER_SEED,
)  # where training may change


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is to be proven.

    Attributes:
        gate: None: `after` is faster. Else: it is slower by no more than this share.
        allowed: Classes of results that may differ.
    """

    before: TrialLaunch
    after: TrialLaunch
    allowed: Sequence[ExactnessClass]
    gate: float | None = None
    budget_ns: int = BUDGET_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What the accounts say."""

    sameness: Sameness
    work: ProofWork
    refusals: list[RefusedWork]
    broken: str | None
    is_enough: bool

    @property
    def is_settled(self) -> bool:
        """Nothing that is timed could make more of it than it is."""
        return (
            bool(self.refusals)
            or self.broken is not None
            or self.sameness.class_ is None
            or not self.is_enough
        )


def prove(
    question: Question, factory: TrialFactory, tell: Callable[[str], None] = lambda line: None
) -> Proof:
    """Count, compare, time.

    Raises:
        AutobrrrError: a side can't be measured.
    """
    began_ns = time.perf_counter_ns()
    work = _counted(question, factory, tell)
    turns = TimedTurns(factory=factory, before=question.before, after=question.after, tell=tell)
    if work.is_settled:
        return _judged(question, work, turns, None, began_ns)
    interval = _timed(question, turns, began_ns)
    found = _judged(question, work, turns, interval, began_ns)
    if interval is None or interval.high >= 0 or found.verdict == "refused":
        return found
    cause = turns.why_slower()
    return msgspec.structs.replace(found, slower=cause, elapsed_ns=time.perf_counter_ns() - began_ns)


def _timed(question: Question, turns: TimedTurns, began_ns: int) -> Interval | None:
    """Starts until the question is decided or the time is over; None: too few."""
    looks, interval = 0, None
    while True:
        turns.start()
        elapsed_ns = time.perf_counter_ns() - began_ns
        starts = len(turns.results)
        over = elapsed_ns * (1 + 1 / max(1, starts)) > question.budget_ns
        if starts >= FEWEST_STARTS and (over or is_look(starts)):
            interval = gain_interval(turns.results, spent(looks))
            looks += 1
        decided = interval is not None and is_look(starts) and _is_decided(question, interval)
        if decided or (over and (starts >= FEWEST_STARTS or elapsed_ns > PATIENCE * question.budget_ns)):
            return interval


def _counted(question: Question, factory: TrialFactory, tell: Callable[[str], None]) -> Counted:
    launches = {"before": question.before, "before, again": question.before, "after": question.after}
    before, again, after = accounts_of(factory, launches, AUDIT_SHARE * question.budget_ns / 1e9, tell)
    return counted(before, again, after, question.allowed)


def counted(
    before: RunAccount, again: RunAccount, after: RunAccount, allowed: Sequence[ExactnessClass]
) -> Counted:
    """Whether the work is the same, from the accounts alone.

    Args:
        again: Of `before`, run once more.
        allowed: Classes of results that may differ.
    """
    same = sameness(before, again, after)
    cls = same.class_
    found = refusals(before, after, cls)
    if cls is not None and cls not in allowed and not found:
        found.append(_not_allowed(same, cls))
    if "changes-training" in allowed:
        found = [each for each in found if each.code not in ACCEPTED]
    count = same.compared_steps
    broken = [*before.noted("broken"), *after.noted("broken")]
    return Counted(
        sameness=same,
        work=ProofWork(before=work_done(before, count), after=work_done(after, count)),
        refusals=found,
        broken=str(broken[0]) if broken else None,
        is_enough=count >= LEAST_COMPARED or (before.ended and after.ended),
    )


def _not_allowed(same: Sameness, cls: ExactnessClass) -> RefusedWork:
    where = "" if same.module is None else f", in {same.module} ({same.place})"
    code = WorkRefusal.OTHER_STREAM if cls == "stream" else WorkRefusal.CHANGES_TRAINING
    return RefusedWork(code=code, why=f"the two part at step {same.step}, by their {same.what}{where}")


def _is_decided(question: Question, interval: Interval) -> bool:
    if question.gate is None:
        return interval.low > 0 or interval.high < 0
    least = math.log1p(-question.gate)
    return interval.low > least or interval.high < least


def _judged(
    question: Question, counted: Counted, turns: TimedTurns, interval: Interval | None, began_ns: int
) -> Proof:
    found = [*counted.refusals, *_otherwise(turns)]
    speed = None if interval is None else _speed(turns, interval)
    needed_ns = None
    elapsed_ns = time.perf_counter_ns() - began_ns
    if interval is not None and question.gate is not None and not _is_decided(question, interval):
        half, gate = (interval.high - interval.low) / 2, -math.log1p(-question.gate)
        if half > gate:
            needed_ns = int(elapsed_ns * (half / gate) ** 2)
            told = f"±{half:.1%} can be told here, the gate is {question.gate:.1%}"
            why = f"{told}; {math.ceil(needed_ns / 6e10)} minutes would do"
            found.append(RefusedWork(code=WorkRefusal.GATE_TOO_FINE, why=why))
    verdict, reason = _verdict(question, counted, speed, interval, found)
    return Proof(
        verdict=verdict,
        reason=reason,
        refusals=found,
        speed=speed,
        slower=None,
        sameness=counted.sameness,
        work=counted.work,
        gate=question.gate,
        needed_ns=needed_ns,
        before=shlex.join(question.before.command),
        after=shlex.join(question.after.command),
        elapsed_ns=elapsed_ns,
    )


def _verdict(
    question: Question,
    counted: Counted,
    speed: ProofSpeed | None,
    interval: Interval | None,
    found: Sequence[RefusedWork],
) -> tuple[ProofVerdict, str]:
    if found:
        return "refused", found[0].why
    if counted.broken is not None:
        return "not_proven", f"the account of a side stopped: {counted.broken}"
    if counted.sameness.class_ is None:
        return (
            "not_proven",
            "two runs of before differ, so nothing can be said of after: give it a fixed seed",
        )
    if not counted.is_enough:
        steps = counted.sameness.compared_steps
        return "not_proven", f"only {steps} steps of both could be compared; --for gives it more time"
    if speed is None or interval is None:
        return "not_proven", "there was no time for two starts; --for gives it more"
    said = f"{gain_words(speed.ratio, speed.interval)} the useful work a second"
    if question.gate is not None:
        whole = speed.whole_ratio >= (1 - question.gate) * (1 - speed.noise)
        if interval.low > math.log1p(-question.gate) and whole:
            return ("proven" if interval.low > 0 and speed.whole_ratio > 1 else "not_slower"), said
        return "not_proven", said
    return ("proven" if interval.low > 0 and speed.whole_ratio > 1 else "not_proven"), said


def _speed(turns: TimedTurns, interval: Interval) -> ProofSpeed:
    def typical(side: str) -> float | None:
        known = turns.seen[side].step_ns
        return float(np.median(known)) if known else None

    return ProofSpeed(
        ratio=interval.factor,
        interval=interval.speed(),
        whole_ratio=turns.whole_ratio or 0.0,
        noise=noise_half(turns.results, ALPHA),
        starts=len(turns.results),
        pairs=turns.pairs,
        clock=turns.clock,
        step_ns=[typical("before"), typical("after")],
    )


def _otherwise(turns: TimedTurns) -> list[RefusedWork]:
    """Whether what was timed held as much as what was counted, on both sides alike."""
    found = []
    for what, its, mine in (
        ("samples", turns.seen["before"].samples, turns.seen["after"].samples),
        ("backward calls", turns.seen["before"].backwards, turns.seen["after"].backwards),
    ):
        if its and mine and np.mean(mine) < np.mean(its) * (1 - OTHERWISE):
            why = f"while it is timed a step has {np.mean(mine):.3g} {what}, before {np.mean(its):.3g}"
            found.append(RefusedWork(code=WorkRefusal.ACTS_OTHERWISE, why=why))
    return found
