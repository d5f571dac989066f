"""Two live trials against each other: one runs while the other stands still, in turn, block by block.

In: the baseline and a candidate, both settled. Out: one log-ratio of speeds for each pair of
neighbouring blocks, in which drift of the machine cancels, and their interval.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from autobrrr.relaunch.study.work_per_step import Yardstick, by_long_steps, by_steps
from autobrrr.relaunch.trial.live_trial import LiveTrial
from autobrrr.tuner.confidence_sequence import Interval, mean_interval
from autobrrr.tuner.token_adjustment import TokenBlock

BLOCK_NS = 120_000_000
FEWEST_STEPS, MOST_STEPS = 4, 400
SETTLE_STEPS = 2
SLOW_NS = 150_000_000  # of steps that are longer two make a block, after one to settle
PAIRS_IN_TIME = 10  # a duel of slow steps may go on for as many
FEWEST_PAIRS = 6
VAGUE = 0.15  # half of an interval that says little; it is worth more time
ALPHA = 0.05
LOOK_S = 0.002
PATIENCE = 8.0  # times what a block should take


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When a duel ends.

    Attributes:
        budget_ns: At most so long, once there is an interval.
        half: Sure enough: half of the interval is no more (log-ratio), or a tenth of the gain, or a
            quarter of the loss.
        beaten: Below it a candidate is given up: it can't be better than the best so far surely is.
    """

    budget_ns: int
    half: float
    beaten: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Duel:
    """What a duel found.

    Attributes:
        values: log(speed of the candidate / of the baseline) by typical steps, one for each pair.
        long_steps: The same by what stands above typical steps, over all pairs.
        base_ns: Mean step of the baseline's blocks.
    """

    values: tuple[float, ...]
    interval: Interval | None
    steps: int
    base_ns: float | None
    pruned: bool = False
    long_steps: float = 0.0


def duel(
    base: LiveTrial,
    candidate: LiveTrial,
    rule: Rule,
    *,
    yardstick: Yardstick = by_steps,
    on_pair: Callable[[Interval | None, int], None] = lambda interval, pairs: None,
) -> Duel:
    """Run blocks until the rule is met or one of the two ends; both stand still afterwards."""
    pairs: list[tuple[TokenBlock, TokenBlock]] = []
    values: list[float] = []
    pruned = False
    interval: Interval | None = None
    began = time.perf_counter_ns()
    longest_ns = PAIRS_IN_TIME * sum(sum(plan(each)) * typical_ns(each) for each in (base, candidate))
    for found in turns({"A": base, "B": candidate}, random.Random(0)):
        pairs.append((found["A"], found["B"]))
        more = yardstick(pairs)
        if len(more) > len(values):
            values, interval = more, mean_interval(more, ALPHA)
            on_pair(interval, len(values))
        spent = time.perf_counter_ns() - began
        if len(values) >= FEWEST_PAIRS and interval is not None:
            pruned = rule.beaten is not None and interval.high < rule.beaten
            half = (interval.high - interval.low) / 2
            if pruned or half <= max(rule.half, interval.mean / 10, -interval.mean / 4):
                break
        sure = interval is not None and len(values) >= FEWEST_PAIRS and is_telling(interval)
        if spent > rule.budget_ns and (sure or spent > max(3 * rule.budget_ns, longest_ns)):
            break
    base_steps = [each.steps for each, _ in pairs]
    return Duel(
        values=tuple(values),
        interval=interval,
        steps=sum(len(each.steps) for pair in pairs for each in pair),
        base_ns=float(np.concatenate(base_steps).mean()) if values else None,
        pruned=pruned,
        long_steps=by_long_steps(pairs),
    )


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
    typical = typical_ns(trial)
    wanted, settle = plan(trial)
    needed = wanted + settle
    resumed_ns = trial.resume()
    deadline = resumed_ns + PATIENCE * needed * max(typical, 1e6) + 1e9
    time.sleep(min(needed * typical / 1e9, 10.0))
    while trial.ending is None:
        trial.look()
        done = trial.steps.between(resumed_ns)
        now = time.perf_counter_ns()
        if len(done) >= needed or (now > deadline and len(done) > settle):
            trial.pause()
            return trial.steps.block(resumed_ns, settle)
        trial.witnesses.flush()
        time.sleep(max(LOOK_S, min(typical / 1e9, 0.05)))
    return None


def plan(trial: LiveTrial) -> tuple[int, int]:
    """Steps of a block that count, and those before them that don't."""
    typical = typical_ns(trial)
    if typical > SLOW_NS:
        return 2, 1
    return min(MOST_STEPS, max(FEWEST_STEPS, math.ceil(BLOCK_NS / max(typical, 1.0)))), SETTLE_STEPS


def typical_ns(trial: LiveTrial) -> float:
    """Median of the recent steps."""
    return float(np.median(trial.steps.recent[-64:])) if len(trial.steps.recent) else 0.0
