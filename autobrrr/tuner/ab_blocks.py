"""Blocks of steps under two sets of remedies, in turn: how long, in which order, and what they say.

In: records of the steps of two neighbouring blocks. Out: one log-ratio of their speeds, in which
drift that is slower than a block cancels. Blocks are short: noise that clings from step to step is
drift too, and cancels between neighbours. What a switch costs sets their least length: a few milliseconds,
or some hundred where many ranks agree on its step.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from math import comb
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from autobrrr.agent.wire import ring_layout
from autobrrr.tuner.job_under_test import Steps

Side = Literal["A", "B"]  # A: without the remedy in question, B: with it

BLOCK_NS = 24_000_000
RARE_BLOCK_NS = 600_000_000
LONGEST_BLOCK_NS = 4_000_000_000
FEWEST_STEPS = 8
FEWEST_SLOW_STEPS = 2
PAIRS_IN_SLOT = 16
DRAINED = 0.003  # of the time of the steps that count, the lead may have become smaller


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPlan:
    """How long a block is. `settle` steps after a change of remedies are dropped, then `steps` count."""

    steps: int
    settle: int

    @property
    def total(self) -> int:
        return self.steps + self.settle


def plan_block(
    step_ns: float, *, rare: bool = False, slot_ns: float | None = None, switch_ns: float = 0.0
) -> BlockPlan:
    """A block is at least 24 ms, 8 steps and a switch long, at most 4 s; shorter, to fit its slot.

    Args:
        step_ns: Typical step.
        rare: The remedy acts on rare long steps: blocks of 600 ms.
        slot_ns: Time of the whole comparison, into which 16 pairs should fit: a large gain of a
            slow job is proven by a few short blocks, and would not be by one long pair.
        switch_ns: From the wish for a change to the first step after it.
    """
    step_ns = max(step_ns, 1.0)
    wanted = max(FEWEST_STEPS, int(np.ceil((RARE_BLOCK_NS if rare else max(BLOCK_NS, switch_ns)) / step_ns)))
    most = LONGEST_BLOCK_NS / step_ns
    if slot_ns is not None:
        most = min(most, max(slot_ns / (2 * PAIRS_IN_SLOT), switch_ns) / step_ns - 1)
    steps = min(wanted, max(FEWEST_SLOW_STEPS, int(most)))
    return BlockPlan(steps=steps, settle=1 if steps < FEWEST_STEPS else 2)


def shortest_pairs_ns(step_ns: float, pairs: int, switch_ns: float = 0.0) -> int:
    """Nanoseconds that so many pairs of the shortest blocks take, as long as the switch before each."""
    steps = min(plan_block(step_ns).total, FEWEST_SLOW_STEPS + 1)
    return int(2 * pairs * (max(steps * step_ns, switch_ns) + switch_ns))


def pair_orders(draw: random.Random) -> Iterator[tuple[Side, Side]]:
    """The order of the two blocks of each pair, A B or B A, drawn anew for every pair.

    So the log-ratio of a pair without an effect is as often above zero as below, whatever the job
    does by itself. Fixed A B B A cancels a linear drift exactly, but not a job that swings in time
    with the blocks: under 6 % drift with a period of five blocks it kept 4.5 % of remedies that do
    nothing, where 1 % is allowed.
    """
    while True:
        yield ("A", "B") if draw.random() < 0.5 else ("B", "A")


def settled(steps: Steps, settle: int, arm_seq: int) -> Steps:
    """The representative steps of a block.

    Args:
        steps: Records of the block.
        settle: So many steps from `arm_seq` on are left out.
        arm_seq: First step under the block's set of remedies.
    """
    late = steps["seq"] >= np.uint64(arm_seq + settle)
    counted: Steps = steps[late & (steps["flags"] & ring_layout.UNREPRESENTATIVE == 0)]
    return counted


def in_balance(steps: Steps) -> Steps:
    """The latest steps during which the host has not used up a lead that it had over the device.

    Launches are queued: when the arms change, the device still works on what the other arm has queued, and
    while a queue drains, the device is busy whatever the host does: a step that is limited by its host looks
    as short as its kernels. So steps count from where the host was ahead by no more than it is at the end:
    the queue has filled since, or stayed as it was, and device time is then what a step takes.

    Args:
        steps: Of one block, in order, as many as there are.
    """
    unstamped = np.flatnonzero(steps["device_ns"] <= 0)
    since: Steps = steps[unstamped[-1] + 1 :] if len(unstamped) else steps
    if len(since) == 0:
        return since
    by_device = since["device_ns"].astype(np.float64)
    lead = np.concatenate([[0.0], np.cumsum(by_device - (since["end_ns"] - since["start_ns"]))])
    left_ns = by_device.sum() - np.concatenate([[0.0], np.cumsum(by_device)])
    fits = lead - lead[-1] <= DRAINED * left_ns
    counted: Steps = since[int(fits.argmax()) :]
    return counted


def log_speed_ratio(
    without: NDArray[np.float64], with_it: NDArray[np.float64], *, rare: bool
) -> float | None:
    """log(mean of A / mean of B): above zero, B is faster. None where a side has too few steps.

    Throughput follows the mean, so means are compared, not medians. A step far above the rest of
    both blocks (a checkpoint, another program) counts as much as third quartile + 6 interquartile
    ranges and no more, unless such steps are what the remedy is for.
    """
    if len(without) < FEWEST_SLOW_STEPS or len(with_it) < FEWEST_SLOW_STEPS:
        return None
    if not rare:
        cap = outlier_cap(np.concatenate([without, with_it]))
        without, with_it = np.minimum(without, cap), np.minimum(with_it, cap)
    a_ns, b_ns = float(without.mean()), float(with_it.mean())
    return float(np.log(a_ns / b_ns)) if a_ns > 0 and b_ns > 0 else None


def outlier_cap(values: NDArray[np.float64]) -> float:
    """Six interquartile ranges above the third quartile: of what lies above, so much counts."""
    low, high = np.quantile(values, (0.25, 0.75)) if len(values) else (0.0, 0.0)
    return float(high + 6 * (high - low))


class LongSteps:
    """Steps far above the rest, such as a checkpoint: a mean of log-ratios understates what is rare."""

    def __init__(self) -> None:
        self._blocks = [0, 0]  # by side: those with such a step
        self._steps = [0, 0]
        self._total_ns = [0.0, 0.0]

    def add(self, without: NDArray[np.float64], with_it: NDArray[np.float64]) -> None:
        """Two neighbouring blocks."""
        cap = outlier_cap(np.concatenate([without, with_it]))
        for side, steps in enumerate((without, with_it)):
            self._blocks[side] += int((steps > cap).any())
            self._steps[side] += len(steps)
            self._total_ns[side] += float(steps.sum())

    @property
    def chance(self) -> float:
        """That as many blocks with long steps fall to its side; 1 where it is no slower over all steps.

        Where they come as often without it, they are binomial: to each side by its steps.
        """
        blocks, (a_steps, b_steps), (a_ns, b_ns) = sum(self._blocks), self._steps, self._total_ns
        if not self._blocks[1] or b_ns * a_steps <= a_ns * b_steps:
            return 1.0
        share = b_steps / (a_steps + b_steps)
        at_least = range(self._blocks[1], blocks + 1)
        return sum(comb(blocks, k) * share**k * (1 - share) ** (blocks - k) for k in at_least)
