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
from autobrrr.recipe import Recipe, script_of
from autobrrr.records import Trial, TuneProgress, Tuning
from autobrrr.relaunch.search.point_search import Search
from autobrrr.relaunch.search.search_space import Point, Result, Space
from autobrrr.relaunch.study.command_refusals import Unmeasurable, refuse_crowding
from autobrrr.relaunch.study.study_findings import Baseline, conclude, judged, trial_of
from autobrrr.relaunch.study.timed_turns import AFTER, BEFORE, Duel, duel, over_starts, require_measured, up
from autobrrr.relaunch.study.work_per_step import Counting
from autobrrr.relaunch.trial import trial_factory
from autobrrr.relaunch.trial.live_trial import LiveTrial
from autobrrr.relaunch.trial.memory_use import Bytes, MemoryModel, available_bytes
from autobrrr.tuner.confidence_sequence import Interval
from autobrrr.tuner.stop_rules import WORTHWHILE

BUDGET_NS = 600_000_000_000
CLOSING_STARTS = 3
KEPT_BACK = 5  # trials: the time of so many is left to ablation and confirmation
WAIT_S = 1.0  # until other workers are looked at again
Pair = tuple[LiveTrial, LiveTrial]  # what stands for the command as given, and a candidate


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
    _base: LiveTrial | None = None
    _seen: Baseline = field(default_factory=Baseline)
    _reserved: int | None = None
    _notes: list[str] = field(default_factory=list)
    _shown: set[Point] = field(default_factory=set)
    _took_ns: list[int] = field(default_factory=list)  # each trial, from its start until it was compared
    _began_ns: int = field(default_factory=time.perf_counter_ns)
    _counting: Counting = field(init=False)
    _memory: MemoryModel = field(init=False)

    def __post_init__(self) -> None:
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
            self._notes += self._memory.left_out({result.point for result in self.search.results})
            winner = self._ablate(self._winner())
            found = None if winner == self.space.base else self._confirm(winner)
            outcome = self._result(winner, found)
            with contextlib.suppress(AutobrrrError):  # what is proven stands without its database
                self.search.finish()
            return outcome
        finally:
            self._close_base()
            self.search.close()

    def has_time_for(self, trials: int) -> bool:
        """Whether so many more fit into the budget, by what the past ones took."""
        usual_ns = statistics.median(self._took_ns) if self._took_ns else 0.0
        return time.perf_counter_ns() - self._began_ns + trials * usual_ns <= self.budget_ns

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
            if first:  # later a candidate may be there too
                taken = base.taken()
                refuse_crowding(taken.memory, available_bytes())
                self._memory.learn(self.space.base, taken)
        return base

    def _close_base(self) -> None:
        if self._base is not None:
            self._base.close()
            self._base = None

    def _warm(self, trial: LiveTrial, what: str) -> bool:
        waits = "steps, waiting for stable step times"
        return trial.warm_up(lambda: self._say("trial", f"{what}: {trial.steps.count} {waits}"))

    def _search(self) -> None:
        while not self._took_ns or self.has_time_for(1 + KEPT_BACK):
            self._memory.look()
            point = self.search.ask()
            self._show()
            if point is not None:
                self.search.tell(self._try(point))
                self._show()
            elif self.search.elsewhere:
                self._say("trial", f"waiting for other workers, which have {self.search.elsewhere} under way")
                time.sleep(WAIT_S)
            else:
                return
        tried, most = len(self.search.results), self.search.most
        if tried < most:
            self._notes.append(f"time ran out after {tried} of at most {most} trials; --for gives it more")

    def _show(self) -> None:
        """What is new: of this run, of others, or of an earlier run that was cut off."""
        for result in self.search.results:
            if result.point in self._shown:
                continue
            self._shown.add(result.point)
            self.on_trial(trial_of(self.space, result))
            if result.origin:
                on_gpu = self._seen.facts is not None and self._seen.facts.on_cuda
                taken = {"gpu" if on_gpu else "memory": result.memory_bytes}
                self._memory.learn(result.point, Bytes(**taken))

    def _try(self, point: Point) -> Result:
        """One candidate against the baseline that stands by."""
        began_ns, expected = time.perf_counter_ns(), self._memory.predicted(point)
        met, taken = None, Bytes()
        with contextlib.closing(self.stable.start(point)) as candidate:
            if self._warm(candidate, self.space.label(point)):
                candidate.pause()
                met = self._meet(candidate, point)
                taken = candidate.taken()
                self._memory.learn(point, taken)
            found = judged(point, met, candidate.ending, self._reserved)
        self._took_ns.append(time.perf_counter_ns() - began_ns)
        return replace(
            found, duration_ns=self._took_ns[-1], memory_bytes=taken.telling, predicted_memory_bytes=expected
        )

    def _meet(self, candidate: LiveTrial, point: Point) -> Duel:
        """Its duel; once more where the baseline came to its end meanwhile."""
        best, points = self.search.best, (self.space.base, point)
        beaten = 0.0 if best is None else max(0.0, best.sure or 0.0)  # the unmodified command is one too
        for _ in range(2):
            base = self._baseline()
            found = self._duel((base, candidate), points, "trial", f"{self.space.label(point)}: ", beaten)
            if candidate.ending is not None or base.ending is None or found.interval is not None:
                break
        seen = self._seen
        seen.step_ns = found.base_ns or seen.step_ns
        seen.samples, seen.tokens = base.samples or seen.samples, base.tokens or seen.tokens
        return found

    def _duel(
        self, trials: Pair, points: tuple[Point, Point], stage: str, doing: str, beaten: float | None = None
    ) -> Duel:
        """Of two trials that stand still, with these points."""

        def on_pair(interval: Interval | None, pairs: int) -> None:
            said = f"{pairs} A/B pairs" if interval is None else interval.words
            self._say(stage, doing + said, pairs, interval)

        yardstick = self._counting.yardstick(*trials, *points)
        return duel(*trials, beaten=beaten, yardstick=yardstick, on_pair=on_pair)

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
            if not self.has_time_for(1 + CLOSING_STARTS):
                self._notes.append(f"no time was left to test whether {label} helps on its own")
                continue
            with contextlib.suppress(Unmeasurable):  # nothing is known of it
                found = self._fresh_duel(peeled, winner, "ablation", f"testing whether {label} helps: ")
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

    def _fresh_duel(
        self, before: Point, after: Point, stage: str, doing: str, keep: Path | None = None
    ) -> Duel:
        """Fresh starts of two points, side by side.

        Args:
            keep: Where the output of the second goes.

        Raises:
            Unmeasurable: one fails, or ends before it was measured.
        """
        sides = {BEFORE: partial(self.stable.start, before), AFTER: partial(self.stable.start, after)}
        with up(sides, lambda: self._say(stage, doing + "waiting for stable step times")) as trials:
            candidate = trials[AFTER]
            found = self._duel((trials[BEFORE], candidate), (before, after), stage, doing)
            require_measured(trials, enough=found.interval is not None)
            if keep is not None:
                candidate.close(keep)
                said = f"{candidate.kept} files of the winner's last trial are in {keep}"
                failed = f"the output was not saved: {candidate.kept}"
                self._notes.append(failed if isinstance(candidate.kept, str) else said)
        return found

    def _confirm(self, winner: Point) -> Interval | None:
        """Fresh starts of both, side by side; None where they could not be measured."""
        self._close_base()
        found: list[Duel] = []
        for i in range(1, CLOSING_STARTS + 1):
            keep = self.keep_output if i == CLOSING_STARTS else None
            doing = f"confirming, start {i} of {CLOSING_STARTS}: "
            try:
                found.append(self._fresh_duel(self.space.base, winner, "final", doing, keep))
            except Unmeasurable as problem:
                if not problem.ending.is_orderly:
                    self._notes.append(f"a fresh start failed: {problem.why}")
                    return None
                if keep is not None:
                    self._notes.append("the output was not saved: the last start ended too soon")
        if self._seen.step_ns is None and found:
            self._seen.step_ns = found[-1].base_ns
        return over_starts(found)

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
                elapsed_ns=time.perf_counter_ns() - self._began_ns,
                budget_ns=self.budget_ns,
            )
        )

    def _result(self, winner: Point, found: Interval | None) -> tuple[Tuning, Recipe | None]:
        if winner != self.space.base and (found is None or found.low <= 0):
            self._notes.append(
                f"{self.space.label(winner)} was not confirmed by fresh starts"
                + ("" if found is None else f": {found.words}")
            )
            winner, found = self.space.base, None
        self._seen.samples = self._seen.samples or self.space.samples(self.space.base)
        self._seen.tokens = self._seen.tokens if self._counting.tokens else None
        script = script_of(self.stable.command)
        self._seen.script = None if script is None else Path(script).name
        notes = [*self._notes, *self._counting.notes]
        return conclude(self.space, self._seen, self.search.results, winner, found, notes=notes)
