"""Speed: fresh processes that take turns, one running while the others are suspended.

In: how both sides are started. Out: for each start, how fast `after` is against `before`, and one process of
`before` against another. Order of turns is drawn anew each round; that of starts goes round.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from autobrrr.prove.slower_cause import slower_cause
from autobrrr.prove.start_statistics import StartResult
from autobrrr.records.proof_records import SlowerCause
from autobrrr.relaunch.study.command_refusals import Unmeasurable, refuse_crowding, refuse_strangers
from autobrrr.relaunch.study.paired_comparison import turns, typical_ns
from autobrrr.relaunch.study.settle_together import settle_in_turn
from autobrrr.relaunch.study.work_per_step import by_steps
from autobrrr.relaunch.trial.live_trial import FEWEST_STEPS, LiveTrial
from autobrrr.relaunch.trial.memory_use import available_bytes
from autobrrr.relaunch.trial.trial_agents import USUAL
from autobrrr.relaunch.trial.trial_factory import TrialFactory
from autobrrr.relaunch.trial.trial_launch import TrialLaunch
from autobrrr.tuner.confidence_sequence import winsorised
from autobrrr.tuner.job_under_test import StepClock
from autobrrr.tuner.token_adjustment import TokenBlock

SIDES = ("before", "twin", "after")
Round = Mapping[str, TokenBlock]  # one turn of each side
ROUNDS, MOST_ROUNDS, FEWEST_ROUNDS = 10, 40, 4


@dataclass(slots=True)
class SideSeen:
    """What one side showed while it was timed, start by start."""

    step_ns: list[float] = field(default_factory=list)
    steps: int = 0
    running_ns: int = 0


@dataclass(slots=True)
class TimedTurns:
    """Starts of both sides, one after the other.

    Attributes:
        one_by_one: Each comes up while the others stand still.
        results: Of each start.
        pairs: Of neighbouring turns, over all starts.
        furthest: The last step that any process came to.
    """

    factory: TrialFactory
    before: TrialLaunch
    after: TrialLaunch
    tell: Callable[[str], None] = lambda line: None
    one_by_one: bool = False
    draw: random.Random = field(default_factory=lambda: random.Random(0))
    results: list[StartResult] = field(default_factory=list)
    seen: dict[str, SideSeen] = field(default_factory=lambda: {side: SideSeen() for side in SIDES})
    pairs: int = 0
    furthest: int = 0
    clock: StepClock = "host"

    def start(self) -> None:
        """One start more: three fresh processes, and their turns.

        Raises:
            Unmeasurable: a side fails, or ends before it can be timed.
            AutobrrrError: three of them do not fit into memory.
        """
        first = len(self.results) % len(SIDES)
        trials: dict[str, LiveTrial] = {}
        try:
            began_ns = time.perf_counter_ns()
            self._begin(trials, (*SIDES[first:], *SIDES[:first]))
            self._turns(trials, worth_ns=time.perf_counter_ns() - began_ns)
        finally:
            for side, trial in trials.items():
                self.furthest = max(self.furthest, trial.steps.count)
                if trial.steps.count >= FEWEST_STEPS:
                    self.seen[side].step_ns.append(typical_ns(trial))
                trial.close()

    def why_slower(self) -> SlowerCause | None:
        """A start of each side more, to see where its time goes; None where that is not clear."""
        trials: dict[str, LiveTrial] = {}
        try:
            self._begin(trials, ("before", "after"))
            self.tell("why it is slower: sampling both")
            return slower_cause(trials["before"], trials["after"])
        except Unmeasurable:
            return None
        finally:
            for trial in trials.values():
                trial.close()

    def _begin(self, trials: dict[str, LiveTrial], sides: Sequence[str]) -> None:
        """Start each, and have its step times settle; all of them then stand still."""
        for side in sides:
            trials[side] = self.factory.begin(self.after if side == "after" else self.before)
            if self.one_by_one:
                self._settle({side: trials[side]})
        if not self.one_by_one:
            self._settle(trials)
        for trial in trials.values():
            refuse_strangers(trial.witnesses.pid, trial.family)
        if not self.results:
            taken = trials["before"].taken()
            refuse_crowding(taken.memory, available_bytes())

    def _settle(self, trials: dict[str, LiveTrial]) -> None:
        def settle(trial: LiveTrial) -> bool:
            is_fit = trial.warm_up()
            trial.witnesses.watch(USUAL)
            return is_fit

        number = len(self.results) + 1
        ready = settle_in_turn(
            tuple(trials.values()),
            settle,
            lambda: self.tell(f"start {number}: waiting for stable step times"),
        )
        if not ready:
            raise _unmeasurable(trials)

    def _turns(self, trials: dict[str, LiveTrial], worth_ns: int) -> None:
        """Rounds: more where coming up has cost more, for as long as that took."""
        rounds: list[Round] = []
        until_ns = time.perf_counter_ns() + worth_ns
        before = {side: (trial.steps.count, trial.ran_ns) for side, trial in trials.items()}
        for found in turns(trials, self.draw):
            rounds.append(found)
            self.tell(f"start {len(self.results) + 1}: round {len(rounds)}")
            if len(rounds) == MOST_ROUNDS or (len(rounds) >= ROUNDS and time.perf_counter_ns() > until_ns):
                break
        for side, trial in trials.items():
            self.seen[side].steps += trial.steps.count - before[side][0]
            self.seen[side].running_ns += trial.ran_ns - before[side][1]
        endings = [each.ending for each in trials.values() if each.ending is not None]
        if any(not each.is_orderly for each in endings) or (endings and len(rounds) < FEWEST_ROUNDS):
            raise _unmeasurable(trials)
        self._conclude(rounds)
        self.clock = trials["before"].steps.clock

    @property
    def whole_ratio(self) -> float | None:
        """Steps a second of `after` against `before`, rare long steps and all; None: no turn."""
        rates = {side: each.steps / each.running_ns for side, each in self.seen.items() if each.running_ns}
        before = [rates[side] for side in ("before", "twin") if rates.get(side)]
        return rates["after"] / float(np.mean(before)) if before and rates.get("after") else None

    def _conclude(self, rounds: list[Round]) -> None:
        result = start_result(rounds)
        if result is not None:
            self.pairs += 2 * len(rounds)
            self.results.append(result)


def start_result(rounds: Sequence[Round]) -> StartResult | None:
    """What the turns of one start say; None: they are too few."""

    def mean(one: str, other: str) -> float | None:
        values = by_steps([(each[one], each[other]) for each in rounds])
        return float(winsorised(np.array(values)).mean()) if len(values) >= FEWEST_ROUNDS else None

    before, twin, luck = mean("before", "after"), mean("twin", "after"), mean("before", "twin")
    if before is None or twin is None or luck is None:
        return None
    return StartResult(gain=(before + twin) / 2, luck=luck)


def _unmeasurable(trials: Mapping[str, LiveTrial]) -> Unmeasurable:
    """Which side could not be timed; what failed before what merely ended."""
    ended = [(side, each.ending) for side, each in trials.items() if each.ending is not None]
    side, ending = min(ended, key=lambda each: each[1].is_orderly)
    return Unmeasurable(ending, "before" if side == "twin" else side)
