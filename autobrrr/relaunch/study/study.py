"""A study from its first trial to its last: search, ablation, confirmation.

In: an order (command, space, budget). Out: a `Tuning` and the recipe of what was proven. The baseline
stands by as a live process that sleeps while it is not compared: each candidate meets it block by
block, at the same time on the same machine. The ratio that is reported comes from fresh starts, not
from the search.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from autobrrr.errors import AutobrrrError
from autobrrr.recipe import Recipe
from autobrrr.records import Trial, TuneProgress, Tuning
from autobrrr.relaunch.search.point_search import Search
from autobrrr.relaunch.search.search_space import Point, Result, Space
from autobrrr.relaunch.study.command_refusals import Unmeasurable, refuse_crowding, refuse_strangers
from autobrrr.relaunch.study.start_statistics import with_long_steps
from autobrrr.relaunch.study.study_findings import Baseline, StudyLedger, judged
from autobrrr.relaunch.study.timed_turns import AFTER, ALPHA, BEFORE, Duel, TimedTurns, duel
from autobrrr.relaunch.study.work_per_step import Counting
from autobrrr.relaunch.trial import live_trial, trial_factory
from autobrrr.relaunch.trial.live_trial import LiveTrial
from autobrrr.relaunch.trial.memory_use import Bytes, MemoryModel, available_bytes
from autobrrr.relaunch.trial.trial_endings import TrialEnding
from autobrrr.tuner.confidence_sequence import Interval
from autobrrr.tuner.stop_rules import WORTHWHILE

BUDGET_NS = 600_000_000_000
SEARCH_SHARE = 0.7  # of it, at most: the rest belongs to ablation and confirmation
CLOSING_STARTS = 3
MINUTE_NS = 60_000_000_000
WAIT_S = 1.0  # until other workers are looked at again


@dataclass(slots=True, kw_only=True)
class StudyBudget:
    """The time of one study, from its making."""

    whole_ns: int
    clock_ns: Callable[[], int] = time.perf_counter_ns
    _began_ns: int = field(init=False)
    _took_ns: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began_ns = self.clock_ns()

    @property
    def spent_ns(self) -> int:
        return self.clock_ns() - self._began_ns

    def enter(self, took_ns: int) -> None:
        """A trial, from its start until it was compared, took so long."""
        self._took_ns.append(took_ns)

    def has_time_to_try(self) -> bool:
        """Time for another trial of the search; the first always has it."""
        kept_back_ns = max((1 - SEARCH_SHARE) * self.whole_ns, self._closing_ns)
        return not self._took_ns or self.spent_ns + self._usual_ns <= self.whole_ns - kept_back_ns

    def enough_ns(self, trials: int) -> int:
        """What the whole would have to be for so many more trials, at what the past ones took."""
        searched_ns = self.spent_ns + trials * self._usual_ns
        return int(max(searched_ns / SEARCH_SHARE, searched_ns + self._closing_ns))

    def has_time_to_ablate(self) -> bool:
        """Time to see whether one part of the winner helps."""
        return self.spent_ns + self._usual_ns <= self.whole_ns - self._closing_ns

    @property
    def _usual_ns(self) -> float:
        return statistics.median(self._took_ns) if self._took_ns else 0.0

    @property
    def _closing_ns(self) -> float:
        return CLOSING_STARTS * self._usual_ns


@dataclass(slots=True, kw_only=True)
class Study:
    """One study.

    Args:
        stable: Starts trials and remembers how.
        search: Which points are tried.
        budget_ns: Time of the study. What has begun is brought to its end; one trial is made in any case.
        keep_output: Where the files of the winner's last trial go.
    """

    stable: trial_factory.TrialFactory
    space: Space
    search: Search
    budget_ns: int = BUDGET_NS
    keep_output: Path | None = None
    on_progress: Callable[[TuneProgress], None] = lambda progress: None
    on_trial: Callable[[Trial], None] = lambda trial: None
    _ledger: StudyLedger = field(default_factory=StudyLedger)
    _base: LiveTrial | None = None
    _seen: Baseline = field(default_factory=Baseline)
    _reserved: int | None = None
    _notes: list[str] = field(default_factory=list)
    _heard: set[Point] = field(default_factory=set)
    _budget: StudyBudget = field(init=False)
    _counting: Counting = field(init=False)
    _memory: MemoryModel = field(init=False)

    def __post_init__(self) -> None:
        self._budget = StudyBudget(whole_ns=self.budget_ns)
        self._counting = Counting(self.space)
        self._memory = MemoryModel(self.space, available_bytes)
        self.search.too_large = lambda point: self._memory.problem(point) is not None

    def run(self, base: LiveTrial | None = None) -> tuple[Tuning, Recipe | None]:
        """The whole study; returns what it found, and the recipe if something was proven.

        Args:
            base: The baseline, where it runs already; it is closed here.

        Raises:
            AutobrrrError: the unmodified command can't be measured.
        """
        self._base = base
        try:
            self._baseline()
            self._search()
            tried = {result.point for result in self.search.results}
            self._notes += self._memory.left_out(tried)
            winner = self._ablate(self._winner())
            found = None if winner == self.space.base else self._confirm(winner)
            outcome = self._result(winner, found)
            with contextlib.suppress(AutobrrrError):  # what is proven stands without its database
                self.search.finish()
            return outcome
        finally:
            self._close_base()
            self.search.close()

    def _baseline(self) -> LiveTrial:
        """The command as given, settled and standing still; started again where it has ended."""
        base = self._base
        if base is None or base.ending is not None:
            self._close_base()
            self._say("trial", "starting the unmodified command")
            base = self._base = self.stable.start(self.space.base)
        if not base.paused:
            self._warm(base, "the unmodified command")
            if base.ending is not None:
                raise Unmeasurable(base.ending)
            self.stable.learn(base)
            first, self._seen.facts = self._seen.facts is None, base.witnesses.facts
            self._seen.samples, self._seen.tokens = base.samples, base.tokens
            self._counting.look(base)
            self._reserved = base.steps.reserved_bytes
            base.pause()
            refuse_strangers(base.witnesses.pid, base.family)
            if first:  # later a candidate may be there too
                taken = base.taken()
                refuse_crowding(taken.memory, available_bytes())
                self._memory.learn(self.space.base, taken)
        return base

    def _close_base(self) -> None:
        if self._base is not None:
            self._base.close()
            self._base = None

    def _warm(self, trial: LiveTrial, what: str, stage: str = "trial") -> bool:
        def look() -> None:
            self._say(stage, f"{what}: {trial.steps.count} steps, waiting for stable step times")

        return trial.warm_up(look)

    def _search(self) -> None:
        while self._budget.has_time_to_try():
            self._memory.look()
            point = self.search.ask()
            self._hear()
            if point is None and not self.search.elsewhere:
                return
            if point is None:
                self._say("trial", f"waiting for other workers, which have {self.search.elsewhere} under way")
                time.sleep(WAIT_S)
                continue
            began = time.perf_counter_ns()
            best = self.search.best
            surely = 0.0 if best is None else max(0.0, best.sure or 0.0)  # the unmodified command is one too
            expected = self._memory.predicted(point)
            met, ending, taken = self._meet(point, surely)
            result = replace(
                judged(point, met, ending, self._reserved),
                memory_bytes=taken.telling,
                predicted_memory_bytes=expected,
            )
            took_ns = time.perf_counter_ns() - began
            self._budget.enter(took_ns)
            if self.search.tell(result):
                self._enter(result, met, took_ns)
        tried = len(self.search.results)
        if tried < self.search.most:
            enough_min = math.ceil(self._budget.enough_ns(self.search.most - tried) / MINUTE_NS)
            self._notes.append(
                f"time ran out after {tried} of at most {self.search.most} trials; "
                f"--for {enough_min}m would do"
            )

    def _hear(self) -> None:
        """What others have found, or this study before it was cut off."""
        for result in self.search.results:
            if result.origin and result.point not in self._heard:
                self._heard.add(result.point)
                self._enter(result, None, 0, result.origin)
                on_gpu = self._seen.facts is not None and self._seen.facts.on_cuda
                taken = {"gpu" if on_gpu else "memory": result.memory_bytes}
                self._memory.learn(result.point, Bytes(**taken))

    def _meet(self, point: Point, beaten: float) -> tuple[Duel | None, TrialEnding | None, Bytes]:
        """One candidate against the baseline that stands by; also what memory it took."""
        label = self.space.label(point)
        with contextlib.closing(self.stable.start(point)) as candidate:
            if not self._warm(candidate, label):
                return None, candidate.ending, Bytes()
            candidate.pause()
            base = self._baseline()
            found = self._fight(base, candidate, point, beaten, label)
            if candidate.ending is None and found.interval is None and base.ending is not None:
                found = self._fight(self._baseline(), candidate, point, beaten, label)
            taken = candidate.taken()
            self._memory.learn(point, taken)
            return found, candidate.ending, taken

    def _fight(self, base: LiveTrial, candidate: LiveTrial, point: Point, beaten: float, label: str) -> Duel:
        def on_pair(interval: Interval | None, pairs: int) -> None:
            said = f"{pairs} A/B pairs" if interval is None else interval.words
            self._say("trial", f"{label}: {said}", pairs, interval)

        found = duel(
            base,
            candidate,
            beaten=beaten,
            yardstick=self._counting.yardstick(base, candidate, self.space.base, point),
            on_pair=on_pair,
        )
        seen = self._seen
        seen.step_ns = found.base_ns or seen.step_ns
        seen.samples, seen.tokens = base.samples or seen.samples, base.tokens or seen.tokens
        return found

    def _winner(self) -> Point:
        """The best of the search; the command as given where nothing is worth a confirmation."""
        best = self.search.best
        return best.point if best is not None and (best.value or 0.0) > WORTHWHILE else self.space.base

    def _ablate(self, winner: Point) -> Point:
        """Leave out each change that the winner does as well without."""
        for i in self.space.changed(winner):
            if len(self.space.changed(winner)) < 2:
                return winner
            peeled = tuple(self.space.base[j] if j == i else level for j, level in enumerate(winner))
            if self.space.problem(peeled) is not None or self._outruns(winner, peeled):
                continue
            label = self.space.parameters[i].label(winner[i])
            if not self._budget.has_time_to_ablate():
                self._notes.append(f"no time was left to test whether {label} helps on its own")
                continue
            parts = self._turns(peeled, winner, "ablation", f"testing whether {label} helps: ")
            with contextlib.suppress(Unmeasurable), parts.up(BEFORE, AFTER) as trials:
                part, whole = trials[BEFORE], trials[AFTER]
                yardstick = self._counting.yardstick(part, whole, peeled, winner)
                found = duel(part, whole, yardstick=yardstick)
                if any(each.ending is not None and not each.ending.is_orderly for each in (whole, part)):
                    continue  # it failed while it was compared: nothing is known of it
                if found.interval is not None and found.interval.low <= 0:
                    self._notes.append(f"{label} was dropped: {found.interval.words} on its own")
                    winner = peeled
        return winner

    def _outruns(self, point: Point, other: Point) -> bool:
        """Whether the search has shown already that one point is faster than another."""
        found = {each.point: each for each in self.search.results if each.value is not None}
        one, its = found.get(point), found.get(other)
        if one is None or its is None or one.low is None or its.low is None or one.origin != its.origin:
            return False
        return one.low > 2 * (its.value or 0.0) - its.low

    def _turns(self, before: Point, after: Point, stage: str, doing: str) -> TimedTurns:
        """Fresh starts of two points."""
        sides = {BEFORE: partial(self.stable.start, before), AFTER: partial(self.stable.start, after)}
        return TimedTurns(sides=sides, tell=lambda text: self._say(stage, doing + text), until_ns=0)

    def _confirm(self, winner: Point) -> Interval | None:
        """Fresh starts of both, side by side; None where they could not be measured."""
        self._close_base()
        turns = self._turns(self.space.base, winner, "final", f"confirming, {CLOSING_STARTS} starts: ")
        for i in range(CLOSING_STARTS):
            try:
                with turns.up(BEFORE, AFTER) as trials:
                    base, candidate = trials[BEFORE], trials[AFTER]
                    turns.measure(trials, self._counting.yardstick(base, candidate, self.space.base, winner))
                    if i == CLOSING_STARTS - 1 and self.keep_output is not None:
                        candidate.close(self.keep_output)
                        self._notes.append(_said_of_output(candidate, self.keep_output))
            except Unmeasurable as problem:
                if not problem.ending.is_orderly:
                    self._notes.append(f"a fresh start failed: {problem.why}")
                    return None
                if i == CLOSING_STARTS - 1 and self.keep_output is not None:
                    self._notes.append("the output was not saved: the last start ended too soon")
        if self._seen.step_ns is None and (step_ns := turns.seen[BEFORE].step_ns):
            self._seen.step_ns = step_ns[-1]
        return with_long_steps(turns.results, ALPHA) if len(turns.results) > 1 else None

    def _enter(self, result: Result, met: Duel | None, duration_ns: int, note: str = "") -> None:
        self.on_trial(self._ledger.enter(self.space, result, met, duration_ns, note))

    def _say(self, stage: str, text: str, pairs: int = 0, interval: Interval | None = None) -> None:
        best = self.search.best
        number = len(self.search.results) + 1
        if stage == "trial" and number <= self.search.most:
            text = f"trial {number} of at most {self.search.most}, {text}"
        if best is not None and stage != "final":
            text += f"; best so far {math.exp(best.value or 0.0):.2f}x"
        self.on_progress(
            TuneProgress(
                stage=stage,  # type: ignore[arg-type]
                text=text,
                pairs=pairs,
                achieved=None if interval is None else interval.factor,
                interval=None if interval is None else interval.speed(),
                elapsed_ns=self._budget.spent_ns,
                budget_ns=self.budget_ns,
            )
        )

    def _result(self, winner: Point, found: Interval | None) -> tuple[Tuning, Recipe | None]:
        proven = found is not None and found.low > 0
        if winner != self.space.base and not proven:
            self._notes.append(
                f"{self.space.label(winner)} was not confirmed by fresh starts"
                + ("" if found is None else f": {found.words}")
            )
        measured = replace(
            self._seen,
            samples=self._seen.samples or self.space.samples(self.space.base),
            tokens=self._seen.tokens if self._counting.tokens else None,
            script=self.stable.script_name,
        )
        if not proven:
            winner, found = self.space.base, None
        notes = [*self._notes, *self._counting.notes]
        return self._ledger.conclude(self.space, measured, winner, found, notes)


def _said_of_output(trial: live_trial.LiveTrial, folder: Path) -> str:
    if isinstance(trial.kept, str):
        return f"the output was not saved: {trial.kept}"
    return f"{trial.kept} files of the winner's last trial are in {folder}"
