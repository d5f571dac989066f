"""Tunes a running job: each candidate on top of what is kept, then ablation, then a fresh closing run.

In: a bench, the verdict with its predictions, settings. Out: `records.Tuning`. Whatever happens,
the remedies of the trial in question are undone; what is kept at the end has been proven twice.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from autobrrr.agent.remedies.registry import RefusalCode
from autobrrr.errors import AutobrrrError
from autobrrr.records import Advice, NoClaim, Reverted, Trial, TuneProgress, Tuning, Verdict
from autobrrr.records.tuning_records import NO_PEAKS
from autobrrr.records.wire_answers import ActiveRemedy
from autobrrr.tuner.arm_switch import SWITCH_ATTEMPTS, Arm, ArmSwitch
from autobrrr.tuner.candidate_space import candidates, conflicts, unasked, widest
from autobrrr.tuner.comparison import Comparing, Comparison, compare
from autobrrr.tuner.job_under_test import (
    JobUnderTest,
    LongEpochs,
    NotApplied,
    RemedyLost,
    durations_ns,
    timed,
)
from autobrrr.tuner.stop_rules import LONG_STEPS, NO_PAIRS, PRECISION, RATHER, WORTHWHILE, PairStanding, proof
from autobrrr.tuner.trial_ledger import TrialLedger
from autobrrr.tuner.tuning_budget import (
    ABLATION_SHARE,
    CLOSING_SHARE,
    Preparation,
    TuneSettings,
    TuningBudget,
)

if TYPE_CHECKING:
    from autobrrr.tuner.tuning_study import TuningStudy

Stage = Literal["trial", "ablation", "final"]

SLICE_NS = 500_000_000
FIRST_STEPS = 8
FEWEST_FOR_MEDIAN = 5
FIRST_WAIT_NS = 3_000_000_000
LATER_STEPS = 128
LATER_NS = 3_000_000_000
SAID_NS = 500_000_000
UNSTAMPED_STEPS = 64
STOPPED = "stopped by the user before the tuning was through"
UNSTAMPED = (
    "the job computes on a device that works asynchronously, and its steps came without the device's time"
)
_VERBS = {"trial": "trying", "ablation": "without", "final": "confirmation run,"}


def tune(
    bench: JobUnderTest,
    *,
    verdict: Verdict | None = None,
    settings: TuneSettings | None = None,
    on_progress: Callable[[TuneProgress], None] = lambda _: None,
    on_trial: Callable[[Trial], None] = lambda _: None,
    already: Sequence[ActiveRemedy] = (),
    standing: Arm = (),
) -> Tuning:
    """Tune the job on the bench, in the calling thread.

    Args:
        verdict: Orders the candidates by its advice; without one all are tried in the table's order.
        on_progress: Called after every pair of blocks.
        on_trial: Called when a trial has ended, and again when its outcome is revised.
        already: Remedies that an earlier tuning has kept. They count as kept from the start, and the closing
            run compares with all of them off.
        standing: Remedies that stay on, in both arms of every comparison: of the recipe that the job was
            started with, or those that only the next epoch would switch.

    Raises:
        UsageError: the settings name what does not exist.
        AutobrrrError: no step ends, or a remedy can't be undone.
        TargetGone: the job ended.
    """
    from autobrrr.tuner.tuning_study import TuningStudy

    asked = settings or TuneSettings()
    run = _LiveTuning(bench, asked, on_progress, on_trial, already, standing)
    on = (*already, *standing)
    listed = candidates(facts=bench.facts, cores=bench.cores, verdict=verdict, selection=asked)
    run.study = TuningStudy([each for each in listed if each not in on])
    for each, why in unasked(verdict=verdict, selection=asked):
        run.ledger.enter(each, "skipped", why)
    for each in on:
        run.ledger.enter_kept(each)
    return run.go()


@dataclass
class _LiveTuning:
    bench: JobUnderTest
    settings: TuneSettings
    on_progress: Callable[[TuneProgress], None]
    on_trial: Callable[[Trial], None]
    already: Sequence[ActiveRemedy]
    standing: Arm
    study: TuningStudy = field(init=False)
    untried: list[Advice] = field(default_factory=list)  # for want of time
    unpaid: list[Advice] = field(default_factory=list)  # what others gain may pay for them yet
    not_met: list[Advice] = field(default_factory=list)  # refused for now: what they are for may still come
    guard_undid: list[Reverted] = field(default_factory=list)
    comparisons: int = 0
    note: str | None = None
    no_claim: NoClaim | None = None
    preparing: Preparation | None = None
    kept: Arm = ()
    closed: Arm = ()  # what the closing run has measured

    def __post_init__(self) -> None:
        self.kept = tuple(self.already)
        self.board = ArmSwitch(self.bench, self.already)
        self.ledger = TrialLedger(self.on_trial)
        self.budget = TuningBudget(self.bench, self.board, self.settings, self.sure_speed)

    def go(self) -> Tuning:
        step_ns = self.first_steps()
        if step_ns is None:
            return self.claims_nothing()
        self.budget.step_ns, closing, enough_s = step_ns, None, None
        try:
            self.search()
            if self.untried:
                enough_s = self.budget.enough_s(self.untried)
            self.ablate()
            if not self.bench.cancelled():
                closing = self.close()
        except BaseException:
            with contextlib.suppress(AutobrrrError, RemedyLost, NotApplied):
                self.settle()  # as far as the job still answers
            raise
        self.settle()
        if self.bench.cancelled():
            self.note = STOPPED if self.note is None else f"{STOPPED}; {self.note}"
        elif self.untried and self.note is None:
            self.note = f"there was no time for {len(self.untried)} of them: --for {enough_s}s would do"
        return self.result(closing, enough_s)

    def claims_nothing(self) -> Tuning:
        """Nothing is tried on a device whose time is not seen, or where the user stops at once."""
        stopped = self.bench.cancelled()
        while (choice := self.study.ask()) is not None:
            self.ledger.enter(choice, "skipped", "stopped by the user" if stopped else UNSTAMPED)
        self.note = STOPPED if stopped else f"nothing can be claimed: {UNSTAMPED}"
        self.no_claim = None if stopped else NoClaim.NO_DEVICE_STAMPS
        return self.result(None, None)

    def first_steps(self) -> float | None:
        """A typical step, to size the blocks by: of very few the shortest, for one may hold an evaluation.

        None where the user stops, or the job computes on a device and its steps lack the device's time.
        """
        first, deadline_ns = self.bench.next_seq(), self.budget.deadline(1.0)
        count = FIRST_STEPS
        while not self.bench.cancelled():
            ended = self.bench.steps(first, count, SLICE_NS)
            took_ns = durations_ns(timed(ended, self.bench.clock))
            waited_ns, unstamped = self.budget.elapsed_ns, len(ended) - len(took_ns)
            if len(took_ns) >= FIRST_STEPS or (len(took_ns) >= 2 and waited_ns > FIRST_WAIT_NS):
                return float(np.median(took_ns) if len(took_ns) >= FEWEST_FOR_MEDIAN else took_ns.min())
            is_late = self.bench.now_ns() > deadline_ns
            if unstamped and (is_late or (waited_ns > FIRST_WAIT_NS and len(ended) >= UNSTAMPED_STEPS)):
                return None
            if is_late:
                raise AutobrrrError(
                    f"only {len(ended)} steps ended within {waited_ns / 1e9:.0f} s",
                    "give more time with --for",
                )
            count = unstamped + FIRST_STEPS
        return None

    def search(self) -> None:
        """Every candidate once; then again what was refused for now: a loop shows its parts as it goes on."""
        try:
            self.try_all()
            if self.not_met and not self.bench.cancelled():
                self.bench.steps(self.bench.next_seq(), LATER_STEPS, LATER_NS)
                self.try_all(self.not_met)
            self.try_all(self.unpaid if self.kept else ())
        finally:
            if self.preparing is not None:
                self.preparing.compiling.stop("the tuning ended")

    def try_all(self, again: Iterable[Advice] = ()) -> None:
        for refused in tuple(again):
            self.study.again(refused)
        while (choice := self.study.ask()) is not None:
            self.consider(choice)
            if self.preparing is not None and self.preparing.ended():
                self.await_preparation()

    def consider(self, choice: Advice) -> None:
        if self.preparing is not None:
            if choice == self.preparing.choice:
                self.await_preparation()
            elif self.budget.to_prepare(choice):
                self.study.again(choice)  # one at a time
                return
        others = [other.label for other in self.standing if conflicts(choice, other)]
        if others:
            self.ledger.enter(choice, "refused", f"{others[0]} sets the same thing and stays on")
            return
        deadline_ns = self.budget.search_deadline(choice, kept=bool(self.kept))
        refusal = self.budget.refusal(choice, deadline_ns)
        if self.bench.cancelled():
            refusal = "stopped by the user"
        if refusal is not None:
            self.ledger.enter(choice, "skipped", refusal)
            # If a pause is too long, more time does not help.
            (self.unpaid if self.budget.price_ns(choice) else self.untried).append(choice)
        elif self.budget.to_prepare(choice):
            self.prepare(choice, deadline_ns)
        else:
            # The price of switching on is added where it turns out what it is.
            share_ns = (deadline_ns - self.bench.now_ns()) / (1 + self.study.waiting)
            self.trial(choice, int(max(share_ns, self.budget.shortest_ns)))

    def prepare(self, choice: Advice, deadline_ns: int) -> None:
        """Have another process compile it; it comes again after the others, or now where none compiles."""
        self.say("trial", f"{choice.label}: compiling beside the job", choice)
        try:
            self.preparing = Preparation(self.budget, choice, deadline_ns)
        except NotApplied as refused:
            self.refuse(choice, refused)
            return
        except RemedyLost as lost:
            self.budget.prepared[choice] = str(lost)
        if self.preparing is None or self.preparing.ended():
            self.consider(choice)
        else:
            self.study.again(choice)

    def await_preparation(self) -> None:
        """Wait until that process has ended, if there is one."""
        running, self.preparing = self.preparing, None
        if running is not None:
            while not running.ended():
                self.bench.steps(self.bench.next_seq(), LATER_STEPS, SLICE_NS)
            self.budget.prepared[running.choice] = running.compiling.why or ""
            self.budget.enter(running.lost_ns, self.sure_speed())

    def sure_speed(self) -> float:
        """What is kept surely gains, as a factor on the job's own speed."""
        return math.prod(self.ledger.sure(choice) for choice in self.kept)

    def trial(self, choice: Advice, slot_ns: int) -> None:
        replaced = [other for other in self.kept if conflicts(choice, other)]
        against = self.against(choice, replaced)
        arm = (*(other for other in self.kept if other not in replaced), choice)
        try:
            found = self.compare(
                "trial",
                choice,
                self.kept,
                arm,
                deadline_ns=self.budget.search_deadline(choice, kept=bool(self.kept)),
                slot_ns=slot_ns,
            )
        except NotApplied as refused:
            self.settle()
            self.refuse(against, refused)
            return
        if self.has_lost(found):
            self.trial(choice, slot_ns)
            return
        self.study.tell(None if found.interval is None else found.interval.mean)
        paused = f"; training paused for {found.price_ns / 1e9:.1f} s" if found.price_ns > SAID_NS else ""
        if found.decision == "better":
            self.kept = arm
            for other in replaced:
                self.ledger.revise(other, f"{choice.label} is faster still")
            self.ledger.enter(against, "kept", found.why + paused, found)
            self.settle()  # last: what goes off here is revised
        else:
            self.settle()
            self.ledger.enter(against, "undone", found.why + paused, found)

    def refuse(self, choice: Advice, refused: NotApplied) -> None:
        if refused.code is RefusalCode.NOT_MET and choice not in self.not_met:
            self.not_met.append(choice)
        outcome: Literal["skipped", "refused"] = "skipped" if isinstance(refused, LongEpochs) else "refused"
        self.ledger.enter(choice, outcome, str(refused))

    def against(self, choice: Advice, replaced: Sequence[Advice]) -> Advice:
        """The candidate with its prediction against what it would replace, as its achieved gain will be."""
        gained = math.prod(map(self.ledger.achieved, replaced))
        if choice.expected is None or gained == 1.0:
            return choice
        return msgspec.structs.replace(choice, expected=round(choice.expected / gained, 3))

    def ablate(self) -> None:
        """Take away one after the other: what no longer pays beside the rest goes.

        The latest was tried beside all others already; and what one of them needs steady can't come and go.
        """
        for choice in self.kept[:-1]:
            without = tuple(other for other in self.kept if other != choice)
            tied = any(conflicts(choice, other) for other in without)
            if choice not in self.kept or tied or self.bench.cancelled():
                continue
            try:
                found = self.compare(
                    "ablation", choice, without, self.kept, deadline_ns=self.budget.deadline(ABLATION_SHARE)
                )
            except NotApplied:
                self.settle()
                continue
            if not self.has_lost(found) and found.decision in ("hopeless", "harmful", "failed"):
                names = ", ".join(each.label for each in without)
                self.drop([choice], f"no longer pays beside {names}: {found.why}")
            self.settle()

    def close(self) -> Comparison | None:
        """The figure that is reported: all kept against all off, fresh; None where none comes on again.

        What does not come on again, or not soon enough, is dropped, and the rest compared anew.
        """
        for _ in range(SWITCH_ATTEMPTS):
            if not self.kept:
                return None
            try:
                found = self.compare(
                    "final",
                    None,
                    (),
                    self.kept,
                    deadline_ns=self.budget.deadline(CLOSING_SHARE),
                    slot_ns=max(0, self.budget.deadline(1.0) - self.bench.now_ns()),
                )
            except LongEpochs as long:  # what switches at once needs no epochs
                by_epoch = [each for each in self.kept if each.reach == "next_epoch"]
                self.drop(by_epoch, f"not confirmed: {long}")
            except NotApplied:
                self.settle()
            else:
                if not self.has_lost(found):
                    self.confirm(found)
                    return found
        self.drop(self.kept, f"refused {SWITCH_ATTEMPTS} times while it was compared")
        return None

    def confirm(self, found: Comparison) -> None:
        """Drop all that the closing run does not confirm."""
        self.closed, interval = self.kept, found.interval
        proven = interval is not None and interval.low > 0
        fits = found.decision in ("better", "undecided") and found.chance >= RATHER
        if found.decision != "cancelled" and not (proven and fits):
            said = found.why if proven or interval is None else interval.words
            said = f"{said}; {LONG_STEPS}" if found.chance < RATHER and LONG_STEPS not in said else said
            self.drop(self.kept, f"not confirmed by the confirmation run: {said}")
        # Both arms met the same crowd, but a remedy may help against the crowd alone.
        crowd = self.bench.crowd(found.duration_ns) if self.kept else None
        if crowd is not None:
            seen = "" if interval is None else f"{interval.words}, but "
            self.note = f"no speed-up is claimed: {seen}{crowd} during the confirmation run"
            self.no_claim = NoClaim.CROWDED

    def has_lost(self, found: Comparison) -> bool:
        """Whether a comparison failed for what was kept before: settled, it says nothing of the rest."""
        kept = self.kept
        if found.decision == "failed":
            self.settle()
        return self.kept != kept

    def drop(self, choices: Sequence[Advice], why: str) -> None:
        """These no longer count as kept."""
        for choice in choices:
            self.ledger.revise(choice, why)
        self.kept = tuple(choice for choice in self.kept if choice not in choices)

    def compare(
        self,
        stage: Stage,
        choice: Advice | None,
        without: Arm,
        with_it: Arm,
        *,
        deadline_ns: int,
        slot_ns: int | None = None,
    ) -> Comparison:
        self.comparisons += 1
        surely, is_final = self.sure_speed(), stage == "final"
        doing = f"{_VERBS[stage]} {'all together' if choice is None else choice.label}"
        begins = doing
        if choice is not None and (price_ns := self.budget.price_ns(choice)):
            begins = f"applying {choice.label}: training pauses for about {price_ns / 1e9:.0f} s"
        self.say(stage, begins, choice)

        def on_pair(now: PairStanding, steps: int) -> None:
            figure = "" if now.interval is None else f": {now.interval.words}"
            self.say(stage, f"{doing}{figure}, {now.pairs} A/B pairs", choice, now, steps)

        asked = Comparing(
            without=without,
            with_it=with_it,
            rule=PRECISION if is_final else proof(WORTHWHILE, self.settings.horizon_ns),
            deadline_ns=deadline_ns,
            slot_ns=slot_ns,
            may_lose_ns=math.inf if is_final else self.budget.limit_ns(),
            step_ns=self.budget.step_ns,
            seed=self.comparisons,
            on_pair=on_pair,
        )
        found = compare(self.bench, self.board, asked)
        if found.without_ns is not None:
            self.budget.step_ns = found.without_ns
        self.budget.enter(found.lost_ns, 1.0 if is_final else surely)
        return found

    def settle(self) -> None:
        """Bring the job under what is kept, less what it has lost.

        Raises:
            AutobrrrError: a remedy can't be switched.
        """
        try:
            gone = self.board.hold(self.kept)
        except RemedyLost as lost:
            raise AutobrrrError(
                f"a remedy can't be applied or reverted: {lost}", "autobrrr detach reverts all of them"
            ) from None
        for choice, why in gone.items():
            self.drop([choice], why)
            if choice in self.board.lost:
                self.guard_undid.append(Reverted(remedy=choice.remedy, why=self.board.lost[choice]))

    def say(
        self,
        stage: Stage,
        text: str,
        choice: Advice | None = None,
        now: PairStanding = NO_PAIRS,
        steps: int = 0,
    ) -> None:
        interval = now.interval
        self.on_progress(
            TuneProgress(
                stage=stage,
                text=text,
                remedy=None if choice is None else choice.remedy,
                options={} if choice is None else choice.options,
                pairs=now.pairs,
                steps=steps,
                achieved=None if interval is None else interval.factor,
                interval=None if interval is None else interval.speed(),
                kept=[kept.remedy for kept in self.kept],
                elapsed_ns=self.budget.elapsed_ns,
                budget_ns=self.settings.budget_ns,
            )
        )

    def result(self, closing: Comparison | None, enough_s: int | None) -> Tuning:
        interval = closing.interval if closing is not None and self.kept == self.closed else None
        if interval is not None and interval.low <= 0:
            interval = None
        # Without an interval (stopped before the closing run, or some has gone since): what the search found.
        found = math.prod(self.ledger.achieved(choice) for choice in self.kept)
        speedup = found if interval is None else interval.factor
        if self.no_claim is NoClaim.CROWDED:  # the figure stands in the note, and nowhere as a claim
            speedup, interval = 1.0, None
        baseline = closing.without_ns if closing is not None else None
        if baseline is None:
            baseline = self.budget.step_ns * (speedup if closing is None else 1.0)
        return Tuning(
            objective="step_ns",
            baseline=round(baseline, 1) or None,
            best=round(baseline / speedup, 1) or None,
            speedup=round(speedup, 4),
            interval=None if interval is None else [round(bound, 4) for bound in interval.speed()],
            class_=widest([choice.class_ for choice in (*self.kept, *self.standing)]),
            kept=[choice.remedy for choice in self.kept],
            reverted=self.ledger.reverted(),
            trials=self.ledger.trials,
            recipe=None,
            note=self.note,
            clock=self.bench.clock,
            no_claim=self.no_claim,
            enough_s=enough_s,
            guard_undid=self.guard_undid,
            job=self.bench.facts,
            peaks=NO_PEAKS if closing is None or interval is None else closing.peaks,
        )
