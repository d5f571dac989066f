"""What a tuning may spend: time up to a deadline, and training time, which it takes from the job.

In: settings, a clock, what comparisons have cost. Out: deadlines, prices, why a candidate is not tried.
The job is held against a twin that nobody tunes: in every five minutes it must do nearly as much.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.records import Advice
from autobrrr.records.gain_words import interval_words
from autobrrr.tuner.ab_blocks import FEWEST_SLOW_STEPS, shortest_pairs_ns
from autobrrr.tuner.arm_switch import ArmSwitch
from autobrrr.tuner.candidate_space import Selection
from autobrrr.tuner.job_under_test import JobUnderTest
from autobrrr.tuner.stop_rules import FEWEST_PAIRS

MINUTE_NS = 60_000_000_000
SEARCH_SHARE = 0.55  # of the budget, for trials
DEAR_SHARE = 0.8  # the same for what takes long to compile: ablation may wait, the closing run may not
ABLATION_SHARE = 0.65  # until when ablation must be through; the rest belongs to the closing run
CLOSING_SHARE = 1.25  # a closing run that looks promising may run over: else proven gains are thrown away
LIKELY_BEST = 3.0  # the largest gain that is likely, where none is predicted
WINDOW_NS = 300_000_000_000
MOST_OF_LOSS = 0.5  # of what the job may still lose, for one comparison: the next may cost something, too
BESIDE_OTHERS = 2.0  # times the usual price where others take the CPUs: at a load of 9 on two, 1.0 to 2.2
LEAST_OF_LOSS = 0.05  # of what it may lose in all, to see anything of a remedy that costs no pause


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneSettings(Selection):
    """Settings of one tuning of a running job."""

    budget_ns: int = MINUTE_NS
    """Time of the whole tuning. A confirmation run that is not yet sure may take a quarter more."""

    spent_ns: int = 0
    """Of the user's time, what passed before the tuning: attaching and the verdict."""

    horizon_ns: int = 30 * MINUTE_NS
    """Time over which a gain counts against the pause of switching it on."""

    max_loss: float = 0.02
    """Share of its work by which the job may fall behind one that nobody tunes, in any five minutes."""


@dataclass(slots=True)
class TuningBudget:
    """Begins when it is made.

    Attributes:
        speed: What is kept surely gains, as a factor on the speed of the twin.
        step_ns: What a step takes.
    """

    bench: JobUnderTest
    board: ArmSwitch
    settings: TuneSettings
    speed: Callable[[], float]
    step_ns: float = 0.0
    prepared: dict[Advice, str] = field(default_factory=dict)  # why no other process compiled it; "": it has
    entered_ns: float = 0.0  # all that was lost so far
    began_ns: int = field(init=False)
    _counted_ns: int = field(init=False)  # until when losses and gains were entered
    _taken_ns: float = field(init=False)  # by the bench's count, then
    _lost: list[tuple[int, float]] = field(default_factory=list)  # from when on, against the twin; gains < 0

    def __post_init__(self) -> None:
        self.began_ns = self._counted_ns = self.bench.now_ns()
        self._taken_ns = self.bench.taken_ns()
        self._lost.append((self.began_ns, self._taken_ns))

    def enter(self, lost_ns: float, speed: float) -> None:
        """A comparison has ended.

        Args:
            lost_ns: What it took from a job that has on what was kept before.
            speed: Of that job, surely, as a factor on the speed of the twin.
        """
        now_ns, taken_ns = self.bench.now_ns(), self.bench.taken_ns()
        self.entered_ns += lost_ns
        won_ns = (speed - 1) * (now_ns - self._counted_ns)
        self._lost.append((self._counted_ns, lost_ns + taken_ns - self._taken_ns - won_ns))
        self._counted_ns, self._taken_ns = now_ns, taken_ns

    def may_lose_ns(self, pause_ns: float = 0.0, gain: float = 1.0) -> float:
        """What the job may still lose of any five minutes; less than nothing: it lost too much.

        Args:
            pause_ns: For which it is about to stand still.
            gain: That it has from then on, beside what is kept.
        """
        now_ns, lost_ns, more = self.bench.now_ns(), 0.0, self.speed() * gain - 1
        least_ns = more * (WINDOW_NS - pause_ns)  # of the windows that begin now, or began earlier
        for began_ns, loss_ns in reversed(self._lost):
            lost_ns += loss_ns
            if (left_ns := WINDOW_NS - (now_ns - began_ns) - pause_ns) > 0:
                least_ns = min(least_ns, more * left_ns - lost_ns)
        return self.settings.max_loss * WINDOW_NS - pause_ns + least_ns

    @property
    def least_ns(self) -> float:
        """What each may cost in any case."""
        return LEAST_OF_LOSS * self.settings.max_loss * WINDOW_NS

    def limit_ns(self) -> float:
        """By how much blocks of one comparison may be slower."""
        return max(self.least_ns, MOST_OF_LOSS * self.may_lose_ns())

    @property
    def elapsed_ns(self) -> int:
        return self.bench.now_ns() - self.began_ns

    def deadline(self, share: float) -> int:
        """When so much of the budget is spent, by the bench's clock."""
        return self.began_ns + int(share * self.settings.budget_ns)

    def search_deadline(self, choice: Advice, *, kept: bool) -> int:
        """When trials end: the rest confirms what is kept; with nothing kept, as little as that may take.

        What takes long to compile may take the time of ablation, too. What goes by epochs takes as many of
        them again to be confirmed: half of the time.
        """
        if choice.reach == "next_epoch" and not kept:
            return (self.bench.now_ns() + self.deadline(CLOSING_SHARE)) // 2
        if kept:
            return self.deadline(SEARCH_SHARE if REGISTRY[choice.remedy].beside_s is None else DEAR_SHARE)
        return min(self.deadline(1.0), self.deadline(CLOSING_SHARE) - self.shortest_ns)

    def price_ns(self, choice: Advice) -> int:
        """What switching it on for the first time is expected to cost."""
        beside_s = self._beside_s(choice)
        price_s = REGISTRY[choice.remedy].price_s
        if beside_s is not None and not self.prepared.get(choice):
            price_s = beside_s
        elif price_s and self.bench.crowd(MINUTE_NS):
            price_s *= BESIDE_OTHERS
        return 0 if choice in self.board.warm else int(1e9 * price_s)

    def _beside_s(self, choice: Advice) -> float | None:
        """What is left of its price; None where it compiles in the job alone, as all that a GPU runs."""
        return None if self.bench.facts.on_cuda else REGISTRY[choice.remedy].beside_s

    def to_prepare(self, choice: Advice) -> bool:
        """Whether another process may take most of its price from the job."""
        return choice not in {*self.board.warm, *self.prepared} and self._beside_s(choice) is not None

    def needed_ns(self, choice: Advice) -> int:
        """The shortest time in which a trial can end with an answer."""
        return self.shortest_ns + self.price_ns(choice)

    @property
    def shortest_ns(self) -> int:
        """The same for one that costs nothing to switch on first."""
        return shortest_pairs_ns(self.step_ns, FEWEST_PAIRS, self.board.switch_ns)

    def refusal(self, choice: Advice, deadline_ns: int) -> str | None:
        """Why a candidate is not tried: it may not pay for its pause in time, or its trial no longer fits."""
        remedy, price_ns = choice.remedy, self.price_ns(choice)
        alone = self.prepared.get(choice)
        why = f" (nothing was compiled beside the job: {alone})" if alone else ""
        pause = f"needs a {price_ns / 1e9:.0f} s pause{why}"
        foreseen = min(choice.interval or (choice.expected or 1.0,))
        if remedy not in self.settings.only:
            if price_ns and self.may_lose_ns(price_ns, max(1.0, foreseen)) < 0:
                said = f" {interval_words(choice.interval)}" if choice.interval else ""
                dear = f"may not earn it back in 5 minutes{said}"
                why = dear if choice.expected else "no gain is predicted"
                return f"{pause} and {why}; --only {remedy} tries it"
            block_ns = (FEWEST_SLOW_STEPS + 1) * self.step_ns  # as long again, if steps become twice as long
            if block_ns > max(self.may_lose_ns(), self.least_ns):
                why = f"a step takes {self.step_ns / 1e9:.1f} s: it may lose more than --max-loss allows"
                return f"{why}; --only {remedy} tries it"
        saved = 1 - 1 / max(choice.expected or LIKELY_BEST, 1.0)
        if price_ns > saved * self.settings.horizon_ns:
            return f"{pause}, more than it can save within {self.settings.horizon_ns / 1e9:.0f} s (--horizon)"
        needed_ns, left_ns = self.needed_ns(choice), deadline_ns - self.bench.now_ns()
        if needed_ns <= left_ns:
            return None
        if price_ns:
            return f"{pause}; rerun with --for {self.enough_s([choice])}s"
        pairs = f"{FEWEST_PAIRS} A/B pairs take {needed_ns / 1e9:.1f} s"
        return f"{pairs}, and {max(0, left_ns) / 1e9:.1f} s are left for trials"

    def enough_s(self, untried: Sequence[Advice]) -> int:
        """The budget within which these could be tried too."""
        needed_ns = sum(3 * self.needed_ns(each) for each in untried)
        whole_ns = (self.elapsed_ns + needed_ns) / SEARCH_SHARE + self.settings.spent_ns
        return math.ceil(whole_ns / 1e9)


class Preparation:
    """Another process compiles for a candidate while others are tried; training pauses for what is left then.

    It ends early where training loses more by it than it may, or too little time would be left.

    Args:
        deadline_ns: When the trial must be through.

    Raises:
        NotApplied, RemedyLost: as `JobUnderTest.prepare` does.
    """

    def __init__(self, budget: TuningBudget, choice: Advice, deadline_ns: int) -> None:
        self.choice = choice
        self._budget, self._bench, self._step_ns = budget, budget.bench, budget.step_ns
        self._end_ns = deadline_ns - budget.needed_ns(choice)
        self._most_ns = max(budget.least_ns, budget.may_lose_ns(budget.price_ns(choice)))
        self._began_ns, self._first = self._bench.now_ns(), self._bench.next_seq()
        self._entered_ns = budget.entered_ns
        self.compiling = self._bench.prepare(choice.remedy, choice.options)

    def ended(self) -> bool:
        """Whether it has ended; it is made to end where it must."""
        late, dear = self._bench.now_ns() > self._end_ns, self.lost_ns > self._most_ns
        if (late or dear or self._bench.cancelled()) and not self.compiling.done():
            self.compiling.stop("it slowed training down" if dear else "it took too long")
        return self.compiling.done()

    @property
    def lost_ns(self) -> float:
        """What training has lost so far, less what comparisons took meanwhile."""
        steps = self._bench.next_seq() - self._first
        elsewhere_ns = self._budget.entered_ns - self._entered_ns
        return max(0.0, self._bench.now_ns() - self._began_ns - steps * self._step_ns - elsewhere_ns)
