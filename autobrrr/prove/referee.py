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
from pathlib import Path

import msgspec
import numpy as np

from autobrrr.prove.parting import sameness
from autobrrr.prove.revision_folders import refuse_shared_code
from autobrrr.prove.run_account import LEAST_COMPARED, RunAccount, accounts_of
from autobrrr.prove.slower_cause import why_slower
from autobrrr.prove.work_rules import refusals, work_done
from autobrrr.quantities import share
from autobrrr.records import ExactnessClass
from autobrrr.records.gain_words import factor_words, gain_words
from autobrrr.records.proof_records import (
    PackageChange,
    Proof,
    ProofSpeed,
    ProofVerdict,
    ProofWork,
    RefusedWork,
    Sameness,
    WorkRefusal,
)
from autobrrr.relaunch.study.command_refusals import Unmeasurable
from autobrrr.relaunch.study.start_statistics import ALPHA, StartRule, noise_half
from autobrrr.relaunch.study.timed_turns import TimedTurns, with_twin
from autobrrr.relaunch.trial.live_trial import TrialLaunch
from autobrrr.relaunch.trial.trial_factory import TrialFactory
from autobrrr.tuner.confidence_sequence import Interval

BUDGET_NS = 120_000_000_000
AUDIT_SHARE = 0.1  # for each of the three runs that are counted
BEARABLE_MINUTES = 60
TAKEN_BACK = 0.02  # of the gain: if rare long steps cost more than this, it is said
# Where training may change.
ACCEPTED = (WorkRefusal.LOWER_PRECISION, WorkRefusal.FEWER_OPERATIONS, WorkRefusal.OTHER_SEED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is to be proven.

    Attributes:
        gate: None: `after` is faster. Else: it is slower by no more than this share.
        allowed: Classes of results that may differ.
        repository: Where both are revisions: the folder that neither may take its code from.
        packages: How the environments of both differ, where that is the question.
        names: What before and after are called, where their commands don't tell them apart.
    """

    before: TrialLaunch
    after: TrialLaunch
    allowed: Sequence[ExactnessClass] = ()
    gate: float | None = None
    budget_ns: int = BUDGET_NS
    repository: Path | None = None
    packages: Sequence[PackageChange] = ()
    names: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What the accounts say."""

    sameness: Sameness
    work: ProofWork
    refusals: list[RefusedWork]
    broken: str | None
    least: int  # steps that must be compared
    is_whole: bool  # both came to their end

    @property
    def is_enough(self) -> bool:
        """Enough steps were compared to conclude anything."""
        return self.is_whole or self.steps >= self.least

    @property
    def steps(self) -> int:
        """That both have, and that were compared."""
        return self.sameness.compared_steps

    @property
    def is_settled(self) -> bool:
        """Nothing that is timed could make more of it than it is."""
        is_unknown = self.broken is not None or self.sameness.class_ is None or not self.is_enough
        return bool(self.refusals) or is_unknown


def prove(
    question: Question, factory: TrialFactory, tell: Callable[[str], None] = lambda line: None
) -> Proof:
    """Count, compare, time.

    Raises:
        AutobrrrError: a side fails, or does not train.
    """
    began_ns = time.perf_counter_ns()
    work = _counted(question, factory, tell)
    again_ns = 0.0 if work.is_whole else (time.perf_counter_ns() - began_ns) / max(1, work.steps)
    sides = with_twin(factory, question.before, question.after)
    turns = TimedTurns(sides=sides, tell=tell, furthest=work.steps)
    rule, ended = StartRule(), None
    if not work.is_settled:
        try:
            rule = _timed(question, turns, began_ns, again_ns)
        except Unmeasurable as problem:
            if not problem.ending.is_orderly:
                raise
            ended = problem
    found = _judged(question, work, turns, rule, began_ns)
    # What was timed is counted to its last step; of a side that ended, whether the other one ends there too.
    wanted = turns.furthest + (ended is not None)
    matters = ended is not None or found.verdict in ("proven", "not_slower")
    if matters and not work.is_whole and work.steps < wanted:
        work = _counted(question, factory, tell, least=wanted)
        found = _judged(question, work, turns, rule, began_ns)
    if ended is not None and not found.refusals and not work.is_settled:
        return msgspec.structs.replace(found, reason=f"{ended.why}; let it train longer")
    if rule.interval is None or rule.interval.high >= 0 or found.verdict == "refused":
        return found
    cause = why_slower(turns)
    return msgspec.structs.replace(found, slower=cause, elapsed_ns=time.perf_counter_ns() - began_ns)


def _timed(question: Question, turns: TimedTurns, began_ns: int, again_ns: float) -> StartRule:
    """Starts until the question is decided or the time is over.

    Args:
        again_ns: What it takes to count a step that is timed, in all runs.
    """
    rule, first_ns, silent = StartRule(gate=question.gate), time.perf_counter_ns(), False
    while True:
        turns.until_ns = began_ns + question.budget_ns - again_ns * turns.furthest
        now_ns, known = time.perf_counter_ns(), len(turns.results)
        is_last = now_ns + (now_ns - first_ns) / max(1, known) > turns.until_ns  # one more takes as long
        if rule.is_over(turns.results, is_last=is_last) or (is_last and silent):
            return rule
        turns.start()
        silent = len(turns.results) == known  # its turns were too few


def _counted(
    question: Question, factory: TrialFactory, tell: Callable[[str], None], least: int = LEAST_COMPARED
) -> Counted:
    launches = [("before", question.before), ("before", question.before), ("after", question.after)]
    before, twin, after = accounts_of(factory, launches, AUDIT_SHARE * question.budget_ns / 1e9, tell, least)
    if question.repository is not None:
        refuse_shared_code([*before.noted("imported"), *after.noted("imported")], question.repository)
    return counted(before, twin, after, question.allowed, least)


def counted(
    before: RunAccount,
    twin: RunAccount,
    after: RunAccount,
    allowed: Sequence[ExactnessClass],
    least: int = LEAST_COMPARED,
) -> Counted:
    """Whether the work is the same, from the accounts alone.

    Args:
        twin: Of `before`, run once more.
        allowed: Classes of results that may differ.
        least: Of fewer compared steps nothing is concluded, unless both runs came to their end.
    """
    same = sameness(before, twin, after)
    cls = same.class_
    found = refusals(before, after, cls, same.step)
    if cls is not None and cls not in allowed and not found:
        found.append(_not_allowed(same, cls))
    if "changes-training" in allowed:
        found = [each for each in found if each.code not in ACCEPTED]
    count = same.compared_steps
    broken = [each for side in (before, twin, after) for each in side.noted("broken")]
    return Counted(
        sameness=same,
        work=ProofWork(before=work_done(before, count), after=work_done(after, count)),
        refusals=found,
        broken=str(broken[0]) if broken else None,
        least=least,
        is_whole=before.ended and after.ended,
    )


def _not_allowed(same: Sameness, cls: ExactnessClass) -> RefusedWork:
    where = "" if same.module is None else f", in {same.module} ({same.place})"
    code = WorkRefusal.OTHER_STREAM if cls == "stream" else WorkRefusal.CHANGES_TRAINING
    return RefusedWork(code=code, why=f"the two part at step {same.step}, by their {same.what}{where}")


def _judged(question: Question, counted: Counted, turns: TimedTurns, rule: StartRule, began_ns: int) -> Proof:
    interval = rule.interval
    found = list(counted.refusals)
    speed = None if interval is None else _speed(turns, interval)
    needed_ns = None
    elapsed_ns = time.perf_counter_ns() - began_ns
    if interval is not None and question.gate is not None and not rule.is_decided:
        half, gate = (interval.high - interval.low) / 2, -math.log1p(-question.gate)
        if half > gate:
            needed_ns = int(elapsed_ns * (half / gate) ** 2)
            told = f"±{share(half, 1)} can be told here, the gate is {share(question.gate, 1)}"
            why = f"{told}; {_told_with(needed_ns)}"
            found.append(RefusedWork(code=WorkRefusal.GATE_TOO_FINE, why=why))
    verdict, reason = _verdict(question, counted, speed, found)
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
        packages=list(question.packages),
        names=list(question.names),
    )


def _told_with(needed_ns: int) -> str:
    """What would decide it: time, where it is bearable."""
    minutes = math.ceil(needed_ns / 6e10)
    return (
        f"--for {minutes}m would do"
        if minutes <= BEARABLE_MINUTES
        else "use a quieter machine, or a wider gate"
    )


def _verdict(
    question: Question, counted: Counted, speed: ProofSpeed | None, found: Sequence[RefusedWork]
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
        told = f"only {counted.steps} steps of both could be compared, of {counted.least}"
        return "not_proven", f"{told}; --for gives it more time"
    if speed is None:
        return "not_proven", "there was no time for two starts; --for gives it more"
    said = f"{gain_words(speed.ratio, speed.interval)} the useful work a second"
    if speed.whole_ratio < (1 - TAKEN_BACK) * speed.interval[0]:
        said += f" in usual steps, {factor_words(speed.whole_ratio)} with rare long ones"
    low, high = speed.interval
    if question.gate is not None:
        least = 1 - question.gate
        if low > least and speed.whole_ratio >= least * (1 - speed.noise):
            return ("proven" if low > 1 and speed.whole_ratio > 1 else "not_slower"), said
        return "not_proven", said
    if low > 1:
        return ("proven" if speed.whole_ratio > 1 else "not_proven"), said
    return "not_proven", f"it is slower: {said}" if high < 1 else f"{said}, which may be no gain"


def _speed(turns: TimedTurns, interval: Interval) -> ProofSpeed:
    known = [turns.seen[side].step_ns for side in ("before", "after")]
    return ProofSpeed(
        ratio=interval.factor,
        interval=interval.speed(),
        whole_ratio=turns.whole_ratio or 0.0,
        noise=noise_half(turns.results, ALPHA),
        starts=len(turns.results),
        pairs=turns.pairs,
        clock=turns.clock,
        step_ns=[float(np.median(each)) if each else None for each in known],
    )
