"""One comparison on the running job: two arms in interleaved blocks, until a rule says stop.

In: a bench, its switchboard, two arms, a rule, a deadline. Out: the comparison with its interval.
The job is left under whichever arm came last; the caller brings it where it belongs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from autobrrr.agent.remedies.families import REGISTRY
from autobrrr.agent.wire import ring_layout
from autobrrr.records import Reverted
from autobrrr.records.tuning_records import NO_PEAKS, MemoryPeaks
from autobrrr.tuner.ab_blocks import (
    LONGEST_BLOCK_NS,
    BlockPlan,
    LongSteps,
    Side,
    in_balance,
    log_speed_ratio,
    pair_orders,
    plan_block,
    settled,
)
from autobrrr.tuner.arm_switch import Arm, ArmSwitch
from autobrrr.tuner.confidence_sequence import Interval, mean_interval
from autobrrr.tuner.job_under_test import (
    JobUnderTest,
    LongEpochs,
    NotApplied,
    RemedyLost,
    Steps,
    durations_ns,
    timed,
)
from autobrrr.tuner.stop_rules import FEWEST_PAIRS, Decision, PairStanding, StopRule, proof
from autobrrr.tuner.token_adjustment import ByLength, TokenBlock, block_of

ALPHA = 0.02  # chance that one comparison's interval is ever wrong, both sides together
LONGEST_SLICE_NS = 500_000_000
SHORTEST_SLICE_NS = 100_000_000
SILENCE_NS = 10_000_000_000
SILENCE_STEPS = 20
SILENCE_PAUSES = 1.5  # times the longest pause that the job makes by itself
SUSPICIONS = 2  # so many in blocks with the remedy are no accident
SLOWER = 4.0
SLOW_FOR_NS = 50_000_000  # so long, for one preemption makes a few short steps long
PROMISING_ERRORS = 1.5
PROMISING_GAIN = 0.01
WARM_UP_PATIENCE = 8.0  # times the usual price
PATIENCE_BLOCKS = 4  # longest blocks, until the queue of a device must be in balance
CHECK_NS = 10_000_000_000  # for a look whether what was kept still pays
NO_STEPS = np.empty(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What came out. Intervals are of log(speed with / speed without)."""

    decision: Decision
    why: str
    interval: Interval | None
    pairs: int
    steps: int
    duration_ns: int
    without_ns: float | None  # mean step of the blocks without
    price_ns: int = 0  # what the first steps with it took longer than usual
    lost_ns: float = 0.0  # with that, and what its blocks took longer than those without; below 0: less
    peaks: MemoryPeaks = NO_PEAKS
    chance: float = 1.0  # that it was slower over all steps, by long ones, without being the cause


@dataclass(slots=True, kw_only=True)
class Comparing:
    """The question that a comparison answers, and with what it may be answered."""

    without: Arm
    with_it: Arm
    rule: StopRule
    deadline_ns: int
    step_ns: float
    slot_ns: int | None = None  # past it, only what looks promising goes on, to the deadline at most
    may_lose_ns: float = math.inf
    seed: int = 0
    on_pair: Callable[[PairStanding, int], None] = field(default=lambda *_: None)


class _Over(Exception):
    """The comparison ends in the middle of a block."""

    def __init__(self, decision: Decision, why: str) -> None:
        super().__init__(why)
        self.decision: Decision = decision
        self.why = why


class _Suspected(Exception):
    """With the remedy no step ends, or all take far longer: by its doing, or not."""

    def __init__(self, first: int, why: str, slow_ns: float | None = None) -> None:
        super().__init__(why)
        self.first = first  # step of the block
        self.slow_ns = slow_ns  # median step; None: none ended


class _Run:
    """State of a running comparison."""

    def __init__(self, bench: JobUnderTest, board: ArmSwitch, asked: Comparing) -> None:
        self.bench, self.board, self.asked = bench, board, asked
        self.began_ns = bench.now_ns()
        own_ns = asked.deadline_ns if asked.slot_ns is None else self.began_ns + asked.slot_ns
        self.slot_end_ns = min(own_ns, asked.deadline_ns)
        changed = set(asked.with_it) ^ set(asked.without)
        # Remedies against rare long steps: plain means decide, over longer blocks.
        rare = all(REGISTRY[each.remedy].rare for each in asked.with_it if each not in asked.without)
        by_epoch = [choice.reach == "next_epoch" for choice in changed]
        self.by_epoch, self.only_by_epoch = any(by_epoch), all(by_epoch)
        self.epochs_a_pair = 2 if self.only_by_epoch else 4
        self.rare = rare or self.by_epoch
        self.plan: BlockPlan = self.plan_for(asked.step_ns)
        self.ratios: list[float] = []  # one for each pair
        self.long_steps = LongSteps()
        self.without_means: list[float] = []
        self.step_ns = asked.step_ns
        self.steps = 0
        self.pause_ns = 0
        self.price_ns = 0
        self.slower_ns = 0.0  # what blocks with the remedy took longer
        self.next_seq = 0
        self.epoch_seq: int | None = None  # where the epoch that is to be counted began
        self.epoch_ns = 0.0
        self.by_length = ByLength()
        self.last_side: Side | None = None
        self.suspicions = 0
        self.pause_of_job_ns = 0  # the longest that it has made by itself
        self.lost_without = False  # the loss is not finite without the remedy either

    def warm_up(self) -> None:
        """Let what takes long when it first goes on (a compilation) take its time; that is its price.

        The time of the comparison begins after it.
        """
        remedies = [REGISTRY[choice.remedy] for choice in self.asked.with_it if choice not in self.board.warm]
        slow = [remedy for remedy in remedies if remedy.warm_up_steps]
        if not slow:
            return
        count = max(remedy.warm_up_steps for remedy in slow)
        patience_ns = WARM_UP_PATIENCE * sum(remedy.price_s for remedy in slow) * 1e9
        seq, _ = self.board.go(self.asked.with_it)
        while len(found := self.bench.steps(seq, count, SHORTEST_SLICE_NS)) < count:
            self.board.go(self.asked.with_it)  # notices what was lost
            if self.bench.cancelled():
                raise _Over("cancelled", "stopped by the user")
            waited_ns = self.bench.now_ns() - self.began_ns
            if waited_ns > patience_ns + count * SLOWER * self.step_ns:
                raise _Over("harmful", f"not running after {waited_ns / 1e9:.0f} s")
        took_ns = durations_ns(found)[:count]
        self.price_ns = int(np.maximum(took_ns - self.step_ns, 0).sum())
        self.board.go(self.asked.with_it)
        self.board.warm.update(self.asked.with_it)
        waited_ns = self.bench.now_ns() - self.began_ns
        self.slot_end_ns = min(self.slot_end_ns + waited_ns, self.asked.deadline_ns)

    def pairs(self) -> NoReturn:
        """Pair after pair, until the rule or the deadline raises _Over."""
        orders = pairwise(pair_orders(random.Random(self.asked.seed)))
        while True:
            over = self.asked.rule(self.standing())
            if over is not None:
                raise _Over(*over)
            self.mind_loss_of_time()
            end_ns = self.bench.now_ns() + self.pair_ns()
            enough = len(self.ratios) >= FEWEST_PAIRS  # fewer can't prove anything
            if end_ns > self.asked.deadline_ns or (
                end_ns > self.slot_end_ns and enough and not self.promising()
            ):
                raise self.out_of_time()
            order, (upcoming, _) = next(orders)
            self.pair(order, upcoming)
            self.asked.on_pair(self.standing(), self.steps)
            if self.bench.paused:  # the job goes on as it was before this comparison, however long that is
                self.board.go(self.asked.without)
                self.bench.rest_while_paused()
                self.epoch_seq = None

    def out_of_time(self) -> _Over:
        return _Over("undecided", f"not proven within the budget ({len(self.ratios)} A/B pairs)")

    def pair(self, order: tuple[Side, Side], upcoming: Side) -> None:
        """Two neighbouring blocks; a pair without enough representative steps does not count.

        Args:
            upcoming: Of the next pair, the first.
        """
        try:
            turns = pairwise((*order, upcoming))
            blocks = {
                side: self.epoch(side, following) if self.by_epoch else self.block(side)
                for side, following in turns
            }
        except _Suspected as suspected:
            self.epoch_seq = None
            self.look_without(suspected)
            return
        without, with_it = blocks["A"], blocks["B"]
        self.steps += len(without.steps) + len(with_it.steps)
        if len(without.steps):
            more_ns = with_it.steps.sum() - len(with_it.steps) * without.steps.mean()
            # Those that settle are as slow, and the one at whose end the remedy goes off.
            self.slower_ns += float(more_ns * (self.plan.total + 1) / self.plan.steps)
        plain = log_speed_ratio(without.steps, with_it.steps, rare=self.rare)
        if plain is None:
            return
        by_length = None if self.rare else self.by_length.log_speed_ratio(without, with_it)
        self.ratios.append(plain if by_length is None else by_length)
        self.long_steps.add(without.steps, with_it.steps)
        self.without_means.append(float(without.steps.mean()))
        self.step_ns = float(np.median(self.without_means[-8:]))
        self.plan = self.plan_for(self.step_ns)

    def look_without(self, suspected: _Suspected) -> None:
        """Whether steps are as usual again without the remedy, which is blamed the second time."""
        beside = self.block("A").steps
        if suspected.slow_ns is None:
            ended = self.bench.steps(suspected.first, 0, 0)
            evaluating = ended[ended["flags"] & ring_layout.EVALUATION != 0]
            self.suspicions += self.note_pause(evaluating) < SILENCE_NS
        elif len(beside):  # of the same seconds: other programs slow both
            self.suspicions += suspected.slow_ns > SLOWER * float(np.median(beside))
        if self.suspicions >= SUSPICIONS:
            raise _Over("harmful", f"{suspected} with it, {self.suspicions} times")

    def note_pause(self, found: Steps) -> int:
        """The longest of these steps, which the job would make without the remedy too."""
        longest_ns = int((found["end_ns"] - found["start_ns"]).max(initial=0))
        self.pause_of_job_ns = max(self.pause_of_job_ns, longest_ns)
        return longest_ns

    def block(self, side: Side) -> TokenBlock:
        began_ns = self.bench.now_ns()
        seq, switched = self.board.go(self.arm(side))
        first = seq if switched else max(seq, self.next_seq)
        settle = self.plan.settle if switched else 0
        found, counted = self.steps_of(side, first, settle)
        if switched and len(found):
            stepping_ns = int(found["end_ns"][-1]) - int(found["start_ns"][0])
            self.board.took_ns.append(max(0.0, self.bench.now_ns() - began_ns - stepping_ns))
        self.next_seq = first if len(found) == 0 else int(found["seq"][-1]) + 1
        self.mind_loss(side, found)
        if side == "A":
            self.note_pause(found[found["flags"] & ring_layout.SWITCHED == 0])
        changes = found[found["flags"] & ring_layout.SWITCHED != 0]
        self.pause_ns = max(self.pause_ns, int(changes["own_ns"].max(initial=0)))
        return block_of(counted)

    def epoch(self, side: Side, following: Side) -> TokenBlock:
        """Run one whole epoch. An arm is applied in the epoch before, where its switch changes nothing."""
        first = self.epoch_seq
        if first is None:
            first = self.next_epoch(side, self.board.go(self.arm(side))[0])
        # What switches at once must not do so within the epoch: it gets one that does not count.
        end = None if self.only_by_epoch else self.next_epoch(side, first + 1)
        applied, _ = self.board.go(self.arm(following))
        self.epoch_seq = self.next_epoch(following, max(first + 1, applied))
        count = (end or self.epoch_seq) - first
        counted = self.bench.steps(first, count, 0)[:count]
        self.mind_loss(side, counted)
        self.epoch_ns = self.epoch_ns or float(durations_ns(counted).sum())
        return block_of(counted)

    def next_epoch(self, side: Side, first: int) -> int:
        """Wait for the step that begins an epoch, from a step on.

        Raises LongEpochs where the fewest pairs of such epochs end after the deadline.
        """
        count, began_ns = 1, self.bench.now_ns()
        epochs, left_ns = FEWEST_PAIRS * self.epochs_a_pair, self.asked.deadline_ns - began_ns
        while True:
            found = self.wait(side, first, count)
            begins = found["seq"][found["flags"] & ring_layout.EPOCH != 0]
            if len(begins):
                return int(begins[0])
            waited_ns = self.bench.now_ns() - began_ns
            if not self.epoch_ns and epochs * waited_ns > left_ns - waited_ns:
                raise LongEpochs(
                    f"its trial needs {epochs} epochs of at least {waited_ns / 1e9:.1f} s, and"
                    f" {(left_ns - waited_ns) / 1e9:.1f} s are left; use a longer --for, or"
                    " autobrrr tune -- COMMAND"
                )
            count = len(found) + 1

    def arm(self, side: Side) -> Arm:
        return self.asked.without if side == "A" else self.asked.with_it

    def steps_of(self, side: Side, first: int, settle: int) -> tuple[Steps, Steps]:
        """All steps of a block, and those of them that count: on a device, since its queue is in balance."""
        began_ns, wanted = self.bench.now_ns(), self.plan.steps
        found = self.wait(side, first, wanted + settle)
        if self.bench.clock == "host":
            return found, settled(found, settle, first)
        while True:
            late = in_balance(found[found["seq"] >= np.uint64(first + settle)])
            missing = wanted - len(late)
            took_ns = self.bench.now_ns() - began_ns
            if missing <= 0 or took_ns > PATIENCE_BLOCKS * max(LONGEST_BLOCK_NS, wanted * self.step_ns):
                return found, settled(late, settle, first)
            found = self.wait(side, first, len(found) + missing)

    def wait(self, side: Side, first: int, count: int) -> Steps:
        """The steps of one block. Ends the comparison where the job crawls or stands with it."""
        began_ns = self.bench.now_ns()
        # Short enough to notice soon that steps with the remedy take far longer than without.
        slice_ns = min(LONGEST_SLICE_NS, max(SHORTEST_SLICE_NS, int(2 * count * self.step_ns)))
        while True:
            found = self.bench.steps(first, count, slice_ns)
            if self.bench.cancelled():
                raise _Over("cancelled", "stopped by the user")
            if len(found) >= count:
                return found
            now_ns = self.bench.now_ns()
            if now_ns > self.asked.deadline_ns:
                raise self.out_of_time()
            if side == "B":
                self.protect(first, found, now_ns - began_ns)

    def mind_loss(self, side: Side, found: Steps) -> None:
        """A loss that stops being finite with the remedy ends the comparison; what it did stays done."""
        losses = found["loss_finite"][
            found["flags"] & (ring_layout.PHASES | ring_layout.SKIPPED) == ring_layout.PHASES
        ]
        lost = int((losses == 0).sum())
        # On a GPU a loss is known one sampled step late: the first one after a switch is the block's before.
        known = losses[losses >= 0]
        late = side == "A" and self.last_side == "B" and len(known) > 0 and known[0] == 0
        self.last_side = side
        if lost and (side == "B" or late) and not self.lost_without:
            raise _Over(
                "harmful", f"the loss was not finite in {lost} of {len(losses)} sampled steps with it"
            )
        self.lost_without = self.lost_without or bool(lost)

    def protect(self, first: int, found: Steps, waited_ns: int) -> None:
        usual = found[found["flags"] & ring_layout.UNREPRESENTATIVE == 0]
        self.mind_loss_of_time(durations_ns(timed(usual, self.bench.clock)))
        took_ns = durations_ns(timed(found, self.bench.clock))
        if len(took_ns) >= 3:
            slow_ns = float(np.median(took_ns))
            if slow_ns > SLOWER * self.step_ns and took_ns.sum() > SLOW_FOR_NS:
                raise _Suspected(first, f"{slow_ns / self.step_ns:.0f} times slower", slow_ns)
        elif waited_ns > max(SILENCE_NS, SILENCE_STEPS * self.step_ns, SILENCE_PAUSES * self.pause_of_job_ns):
            raise _Suspected(first, f"only {len(found)} steps ended in {waited_ns / 1e9:.0f} s")

    def mind_loss_of_time(self, took_ns: NDArray[np.float64] = NO_STEPS) -> None:
        """Ends the comparison once blocks with the remedy have cost what it may cost.

        Args:
            took_ns: Steps of the block that runs, those that have ended.
        """
        lost_ns = self.slower_ns + float((took_ns - self.step_ns).sum())
        if lost_ns > self.asked.may_lose_ns:
            self.slower_ns = lost_ns
            raise _Over("hopeless", f"stopped: it had lost {lost_ns / 1e9:.1f} s, the most by --max-loss")

    def promising(self) -> bool:
        """The gain so far is clear of its plain standard error, but the interval is not yet of zero."""
        interval = self.standing().interval
        if interval is not None and interval.low > 0:
            return False
        if len(self.ratios) < 3:
            return True
        error = float(np.std(self.ratios, ddof=1)) / np.sqrt(len(self.ratios))
        return bool(np.mean(self.ratios) > max(PROMISING_ERRORS * error, PROMISING_GAIN))

    def plan_for(self, step_ns: float) -> BlockPlan:
        slot_ns = self.slot_end_ns - self.began_ns
        return plan_block(step_ns, rare=self.rare, slot_ns=slot_ns, switch_ns=self.board.switch_ns)

    def pair_ns(self) -> float:
        if self.by_epoch:
            return self.epochs_a_pair * self.epoch_ns
        steps = 2 * (self.plan.steps + self.plan.settle)
        return steps * self.step_ns + 2 * self.board.switch_ns

    def standing(self) -> PairStanding:
        return PairStanding(
            pairs=len(self.ratios),
            interval=mean_interval(self.ratios, ALPHA, winsorise=not self.rare),
            pause_ns=max(self.pause_ns, self.price_ns),
            chance=self.long_steps.chance,
        )

    def outcome(self, over: _Over) -> Comparison:
        return Comparison(
            decision=over.decision,
            why=over.why,
            interval=self.standing().interval,
            pairs=len(self.ratios),
            steps=self.steps,
            duration_ns=self.bench.now_ns() - self.began_ns,
            without_ns=float(np.mean(self.without_means)) if self.without_means else None,
            price_ns=self.price_ns,
            lost_ns=self.price_ns + self.slower_ns,
            peaks=self.bench.take_peaks(
                {choice.remedy for choice in self.asked.with_it if choice not in self.asked.without}
            ),
            chance=self.long_steps.chance,
        )


def compare(bench: JobUnderTest, board: ArmSwitch, asked: Comparing) -> Comparison:
    """Run one comparison.

    Raises:
        NotApplied: the job refuses the arm with the remedy.
        errors.TargetGone: the job ended.
    """
    bench.take_peaks(())  # those of before are not of this comparison
    run = _Run(bench, board, asked)
    try:
        run.warm_up()
        run.pairs()
    except _Over as over:
        return run.outcome(over)
    except RemedyLost as lost:
        return run.outcome(_Over("failed", f"could not be held: {lost}"))


def undo_losses(
    bench: JobUnderTest, board: ArmSwitch, step_ns: float, *, budget_ns: int = CHECK_NS
) -> list[Reverted]:
    """Compare all-on with all-off now; undo and return everything where on is the slower. Blocks meanwhile.

    Where what was kept may no longer pay: a slow stretch alone (`PostTuningWatch`) proves nothing.

    Args:
        board: Whose active remedies are guarded.
        step_ns: Mean step with all of them off, from the closing run of the tuning.
    """
    on = board.active
    if not on:
        return []
    asked = Comparing(
        without=(),
        with_it=on,
        rule=proof(0.0, math.inf),
        deadline_ns=bench.now_ns() + budget_ns,
        step_ns=step_ns,
    )
    try:
        found = compare(bench, board, asked)
    except NotApplied:
        found = None
    if found is None or found.decision not in ("hopeless", "harmful"):
        return [Reverted(remedy=each.remedy, why=why) for each, why in board.hold(on).items()]
    board.hold(())
    return [Reverted(remedy=choice.remedy, why=f"the guard reverted it: {found.why}") for choice in on]
