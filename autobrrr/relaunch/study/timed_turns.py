"""Live trials that take turns: one runs while the others stand still; each round draws their order anew.

In: two settled trials, or how each side is started. Out: one log-ratio of speeds for each pair of neighbors,
in which drift of the machine cancels, and their interval; over several starts how fast `after` is against
`before`, and one process of `before` against another, in an order that goes round.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from autobrrr.relaunch.study.command_refusals import Unmeasurable, refuse_crowding
from autobrrr.relaunch.study.start_statistics import StartResult
from autobrrr.relaunch.study.work_per_step import Yardstick, by_long_steps, by_steps
from autobrrr.relaunch.trial.live_trial import FEWEST_STEPS, LOOK_S, LiveTrial, TrialLaunch
from autobrrr.relaunch.trial.memory_use import available_bytes
from autobrrr.relaunch.trial.trial_agents import USUAL
from autobrrr.relaunch.trial.trial_factory import TrialFactory
from autobrrr.tuner.confidence_sequence import Interval, mean_interval, student_quantile, winsorised
from autobrrr.tuner.job_under_test import StepClock
from autobrrr.tuner.token_adjustment import TokenBlock

BEFORE, TWIN, AFTER = "before", "twin", "after"
Sides = Mapping[str, Callable[[], LiveTrial]]
Round = Mapping[str, TokenBlock]  # one turn of each side
ROUNDS, MOST_ROUNDS, FEWEST_ROUNDS = 10, 40, 4
BLOCK_NS = 120_000_000
SHORTEST_BLOCK, LONGEST_BLOCK = 4, 400  # steps
SETTLE_STEPS = 2
SLOW_NS = 150_000_000  # of steps that are longer two make a block, after one to settle
PAIRS_IN_TIME = 10  # a duel of slow steps may go on for as many
FEWEST_PAIRS = 6
DUEL_NS = 3_000_000_000  # at most so long, once there is an interval
SURE = 0.02  # half of an interval that is narrow enough, or a tenth of the gain, or a quarter of the loss
VAGUE = 0.15  # half of an interval that says little; it is worth more time
LEAST_LOST = 0.01  # to long steps, a log-ratio; less may be another program's doing
ALPHA = 0.05
BLOCK_LOOK_S = 0.002
PATIENCE = 8.0  # times what a block should take


@dataclass(frozen=True, slots=True, kw_only=True)
class Duel:
    """What a duel found.

    Attributes:
        values: log(speed of the candidate / of the baseline), one for each pair.
        interval: Of their mean; None: too few pairs.
        base_ns: Mean step of the baseline's blocks.
        lost: What occasional long steps have taken off the values; 0: nothing that is more than chance.
    """

    values: tuple[float, ...]
    interval: Interval | None
    steps: int
    base_ns: float | None
    pruned: bool = False
    lost: float = 0.0


def duel(
    base: LiveTrial,
    candidate: LiveTrial,
    *,
    beaten: float | None = None,
    yardstick: Yardstick = by_steps,
    on_pair: Callable[[Interval | None, int], None] = lambda interval, pairs: None,
) -> Duel:
    """Run blocks until their interval says enough or one of the two ends; both stand still afterwards.

    Args:
        beaten: Below it a candidate is given up: it can't be better than the best so far surely is.
    """
    pairs: list[tuple[TokenBlock, TokenBlock]] = []
    values: list[float] = []
    pruned = False
    interval: Interval | None = None
    began = time.perf_counter_ns()
    longest_ns = PAIRS_IN_TIME * sum(sum(plan(each)) * each.steps.typical_ns for each in (base, candidate))
    for found in turns({"A": base, "B": candidate}, random.Random(0)):
        pairs.append((found["A"], found["B"]))
        more = yardstick(pairs)
        if len(more) > len(values):
            values, interval = more, mean_interval(more, ALPHA)
            on_pair(interval, len(values))
        spent = time.perf_counter_ns() - began
        if len(values) >= FEWEST_PAIRS and interval is not None:
            pruned = beaten is not None and interval.high < beaten
            half = (interval.high - interval.low) / 2
            if pruned or half <= max(SURE, interval.mean / 10, -interval.mean / 4):
                break
        sure = interval is not None and len(values) >= FEWEST_PAIRS and is_telling(interval)
        if spent > DUEL_NS and (sure or spent > max(3 * DUEL_NS, longest_ns)):
            break
    lost = by_long_steps(pairs)
    lost = lost if lost < -LEAST_LOST else 0.0
    if interval is not None and lost:
        values = [each + lost for each in values]
        low, high = interval.low + lost, interval.high + lost
        interval = replace(interval, mean=interval.mean + lost, low=low, high=high)
    base_steps = [each.steps for each, _ in pairs]
    return Duel(
        values=tuple(values),
        interval=interval,
        steps=sum(len(each.steps) for pair in pairs for each in pair),
        base_ns=float(np.concatenate(base_steps).mean()) if values else None,
        pruned=pruned,
        lost=lost,
    )


def over_starts(found: Sequence[Duel], alpha: float = ALPHA) -> Interval | None:
    """Student's interval of the gain over fresh starts; None: of one.

    Few starts may be alike by luck: it is no narrower than the interval over all pairs.
    """
    gains = [each.interval.mean for each in found if each.interval is not None]
    if len(gains) < 2:
        return None
    count, mean = len(gains), float(np.mean(gains))
    half = student_quantile(1 - alpha / 2, count - 1) * float(np.std(gains, ddof=1)) / math.sqrt(count)
    pooled = mean_interval([value for each in found for value in each.values], alpha)
    if pooled is not None:
        half = max(half, (pooled.high - pooled.low) / 2)
    return Interval(mean=mean, low=mean - half, high=mean + half, count=count)


def turns(trials: Mapping[str, LiveTrial], draw: random.Random) -> Iterator[dict[str, TokenBlock]]:
    """Rounds in which each runs for a block, in an order that is drawn anew, until one of them has ended."""
    while True:
        found: dict[str, TokenBlock] = {}
        for side in draw.sample(list(trials), len(trials)):
            if (turn := block(trials[side])) is None:
                return
            found[side] = turn
        yield found


def is_telling(interval: Interval) -> bool:
    """Whether an interval is short, or lies well on one side."""
    return (interval.high - interval.low) / 2 <= max(VAGUE, abs(interval.mean) / 2)


def block(trial: LiveTrial) -> TokenBlock | None:
    """Let a trial run for one block; None where it ended meanwhile."""
    typical = trial.steps.typical_ns
    wanted, settle = plan(trial)
    needed = wanted + settle
    resumed_ns = trial.resume()
    deadline = resumed_ns + PATIENCE * needed * max(typical, 1e6) + 1e9
    time.sleep(min(needed * typical / 1e9, 10.0))
    while trial.ending is None:
        trial.look()
        done = len(trial.steps.block(resumed_ns).steps)
        now = time.perf_counter_ns()
        if done >= needed or (now > deadline and done > settle):
            trial.pause()
            return trial.steps.block(resumed_ns, settle)
        trial.witnesses.flush()
        time.sleep(max(BLOCK_LOOK_S, min(typical / 1e9, 0.05)))
    return None


def plan(trial: LiveTrial) -> tuple[int, int]:
    """Steps of a block that count, and those before them that don't."""
    typical = trial.steps.typical_ns
    if typical > SLOW_NS:
        return 2, 1
    return min(LONGEST_BLOCK, max(SHORTEST_BLOCK, math.ceil(BLOCK_NS / max(typical, 1.0)))), SETTLE_STEPS


def with_twin(factory: TrialFactory, before: TrialLaunch, after: TrialLaunch) -> Sides:
    """How three sides are started: two are the same, whose difference is luck."""
    begin = {name: partial(factory.begin, before) for name in (BEFORE, TWIN)}
    return {**begin, AFTER: partial(factory.begin, after)}


@dataclass(slots=True)
class SideSeen:
    """What one side showed while it was timed, over all starts."""

    step_ns: list[float] = field(default_factory=list)
    steps: int = 0
    running_ns: int = 0


@dataclass(slots=True)
class TimedTurns:
    """Starts of all sides, one after the other.

    Attributes:
        results: Of each start.
        pairs: Of neighbouring turns, over all starts.
        furthest: The last step that any process came to.
    """

    sides: Sides
    tell: Callable[[str], None] = lambda line: None
    draw: random.Random = field(default_factory=lambda: random.Random(0))
    results: list[StartResult] = field(default_factory=list)
    seen: dict[str, SideSeen] = field(default_factory=lambda: defaultdict(SideSeen))
    pairs: int = 0
    furthest: int = 0
    until_ns: float = math.inf  # rounds go on for as long as the start took, but not past this
    clock: StepClock = "host"

    def start(self) -> None:
        """One start more: fresh processes, and their turns; the longer they took to start, the more of them.

        Raises:
            Unmeasurable: a side fails, or ends before it can be timed.
            AutobrrrError: they do not fit into memory.
        """
        names, first = list(self.sides), len(self.results) % len(self.sides)
        with self.up(*names[first:], *names[:first]) as trials:
            if not self.results:
                refuse_crowding(trials[BEFORE].taken().memory, available_bytes())
            self._measure(trials)

    @contextlib.contextmanager
    def up(self, *sides: str) -> Iterator[dict[str, LiveTrial]]:
        """Fresh trials of these sides, settled and standing still; all are closed at the end.

        Raises:
            Unmeasurable: a side fails, or ends before.
        """
        text = f"start {len(self.results) + 1}: waiting for stable step times"
        with up({side: self.sides[side] for side in sides}, lambda: self.tell(text), self._see) as trials:
            yield trials

    def _see(self, side: str, trial: LiveTrial) -> None:
        self.furthest = max(self.furthest, trial.steps.count)
        if trial.steps.count >= FEWEST_STEPS:
            self.seen[side].step_ns.append(trial.steps.typical_ns)

    def _measure(self, trials: Mapping[str, LiveTrial]) -> None:
        rounds: list[Round] = []
        for trial in trials.values():
            if trial.witnesses.chief is not None:
                trial.witnesses.chief.cadence = USUAL
        now_ns = time.perf_counter_ns()
        until_ns = min(2 * now_ns - min(trial.began_ns for trial in trials.values()), self.until_ns)
        before = {side: (trial.steps.count, trial.ran_ns) for side, trial in trials.items()}
        for found in turns(trials, self.draw):
            rounds.append(found)
            self.tell(f"start {len(self.results) + 1}: round {len(rounds)}")
            if len(rounds) == MOST_ROUNDS or (len(rounds) >= ROUNDS and time.perf_counter_ns() > until_ns):
                break
        for side, trial in trials.items():
            self.seen[side].steps += trial.steps.count - before[side][0]
            self.seen[side].running_ns += trial.ran_ns - before[side][1]
        require_measured(trials, enough=len(rounds) >= FEWEST_ROUNDS)
        if (result := start_result(rounds)) is not None:
            self.pairs += (len(trials) - 1) * len(rounds)
            self.results.append(result)
        self.clock = trials[BEFORE].steps.clock

    @property
    def whole_ratio(self) -> float | None:
        """Steps a second of `after` over `before`, rare long steps included; None without a turn."""
        rates = {side: each.steps / each.running_ns for side, each in self.seen.items() if each.running_ns}
        before = [rates[side] for side in (BEFORE, TWIN) if rates.get(side)]
        return rates[AFTER] / float(np.mean(before)) if before and rates.get(AFTER) else None


@contextlib.contextmanager
def up(
    sides: Sides,
    on_look: Callable[[], None],
    on_end: Callable[[str, LiveTrial], None] = lambda side, trial: None,
) -> Iterator[dict[str, LiveTrial]]:
    """Fresh trials, settled and standing still; all are closed at the end.

    Raises:
        Unmeasurable: one fails, or ends before.
    """
    trials: dict[str, LiveTrial] = {}
    try:
        for side, start in sides.items():
            trials[side] = start()
        if not settle_in_turn(list(trials.values()), on_look):
            require_measured(trials, enough=False)
        yield trials
    finally:
        for side, trial in trials.items():
            on_end(side, trial)
            trial.close()


def settle_in_turn(
    trials: Sequence[LiveTrial],
    on_look: Callable[[], None] = lambda: None,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Suspend each as soon as it trains; then let each settle while the others stand still.

    Starting is waiting for the most part and overlaps; steps that train beside another trial's would not
    settle.

    Returns:
        Whether all of them stand there, fit to be measured.
    """
    waiting = list(trials)
    while waiting:
        for trial in list(waiting):
            trial.look()
            if trial.ending is not None:
                return False
            if trial.steps.count:
                trial.pause()
                waiting.remove(trial)
        on_look()
        if waiting:
            sleep(LOOK_S)
    for trial in trials:
        trial.resume()
        if not trial.warm_up(on_look):
            return False
        trial.pause()
    return True


def start_result(rounds: Sequence[Round]) -> StartResult | None:
    """What the turns of one start say; None: they are too few."""
    compared = ((BEFORE, AFTER), (TWIN, AFTER), (BEFORE, TWIN))
    found = [by_steps([(each[one], each[other]) for each in rounds]) for one, other in compared]
    if min(map(len, found)) < FEWEST_ROUNDS:
        return None
    against_one, against_twin, luck = (float(winsorised(np.array(values)).mean()) for values in found)
    return StartResult(gain=(against_one + against_twin) / 2, luck=luck)


def require_measured(trials: Mapping[str, LiveTrial], *, enough: bool) -> None:
    """Raises Unmeasurable: a side has failed, or ended before there were enough turns."""
    ended = [(side, each.ending) for side, each in trials.items() if each.ending is not None]
    side, ending = min(ended, key=lambda each: each[1].is_orderly, default=("", None))
    if ending is not None and not (ending.is_orderly and enough):
        raise Unmeasurable(ending, BEFORE if side == TWIN else side)
