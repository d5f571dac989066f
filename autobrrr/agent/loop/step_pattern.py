"""What one step is: which optimizer's firing closes it, and when that has to be learned anew.

In: the ids of the optimizers, in the order in which they fire (or the events of a fallback
source). Out: whether this event closes a step, and whether the pattern is settled. Pure; one
thread. Several optimizers are taken apart by their repeating cycle: GAN, n_critic, actor and critic.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

CYCLES = 3
SETTLING_STEPS = 6
LONGEST_CYCLE = 64
PATIENCE = 64  # fires without a pattern until the best guess is taken
FIRST_WINDOW = 16
LAST_WINDOW = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """The repeating cycle: its closing event, how often that fires in it, and its length."""

    anchor: int
    every: int
    cycle: int


def find_pattern(fires: Sequence[int], window: int = FIRST_WINDOW) -> Pattern | None:
    """The shortest cycle that the last fires repeat three times.

    A cycle that leaves out an optimizer seen within the last `window` fires does not count: the
    first fires of an n_critic loop would look like a single optimizer.
    """
    recent = set(fires[-window:])
    for cycle in range(1, min(LONGEST_CYCLE, len(fires) // CYCLES) + 1):
        tail = fires[-cycle * CYCLES :]
        if all(tail[i] == tail[i + cycle] for i in range(len(tail) - cycle)) and recent <= set(tail):
            return _closing(fires, tail[-cycle:])
    return None


def best_guess(fires: Sequence[int]) -> Pattern:
    """Without a cycle: the rarest optimizer that is not a rare exception."""
    counts = Counter(fires)
    usual = {who: n for who, n in counts.items() if n >= CYCLES and n * 16 >= len(fires)}
    anchor = min(usual or counts, key=lambda who: counts[who])
    return Pattern(anchor=anchor, every=1, cycle=max(1, len(fires) // counts[anchor]))


def _closing(fires: Sequence[int], cycle: Sequence[int]) -> Pattern:
    counts = Counter(cycle)
    rarest = min(counts.values())
    if rarest * 16 < len(cycle):  # now and then only: a step is what happens in between
        often = max(counts, key=lambda who: counts[who])
        return Pattern(anchor=often, every=1, cycle=1)
    first_seen = list(dict.fromkeys(fires))
    anchor = max((who for who in counts if counts[who] == rarest), key=first_seen.index)
    return Pattern(anchor=anchor, every=counts[anchor], cycle=len(cycle))


class StepPattern:
    """Learns the pattern, then says which event closes a step."""

    def __init__(self) -> None:
        self.source = "optimizer"
        self.pattern: Pattern | None = None
        self.relearned = 0
        self._fires: deque[int] = deque(maxlen=LONGEST_CYCLE * (CYCLES + 1))
        self._known: set[int] = set()
        self._tried = 0
        self._closed = 0
        self._anchor_fires = 0
        self._without_anchor = 0
        self._provisional = 0

    @property
    def settling(self) -> bool:
        """Steps are not representative yet."""
        return self.pattern is None or self._closed <= SETTLING_STEPS

    @property
    def simple_anchor(self) -> int:
        """The one optimizer whose every fire closes a step; 0 where it is not that simple."""
        pattern = self.pattern
        if pattern is None or pattern.every != 1 or self.source != "optimizer":
            return 0
        return pattern.anchor

    @property
    def others(self) -> frozenset[int]:
        """The optimizers whose fires never close a step; none where it is not that simple."""
        anchor = self.simple_anchor
        return frozenset(self._known - {anchor}) if anchor else frozenset()

    def passed(self, count: int) -> None:
        """So many fires of others went the short way, and none of the anchor since."""
        if count:
            self._without_anchor += count
            self._fires.clear()  # they would be missing from it

    def fire(self, who: int) -> bool:
        """An optimizer has stepped. Returns whether that closes a step."""
        if self.source != "optimizer":
            self.start_over("optimizer")
        self._fires.append(who)
        if self.pattern is None:
            return self._learn(who)
        if who not in self._known:
            self.relearned += 1
            self._forget()
            return self._learn(who)
        if who != self.pattern.anchor:
            self._without_anchor += 1
            if self._without_anchor > 4 * self.pattern.cycle + 8:
                self.relearned += 1
                self._forget()
            return False
        self._without_anchor = 0
        self._anchor_fires += 1
        if self._anchor_fires % self.pattern.every:
            return False
        self._closed += 1
        return True

    def event(self, source: str) -> bool:
        """An event of a fallback source: backward, forward or loader. Closes a step if it is ours."""
        if source != self.source:
            return False
        self._closed += 1
        if self.pattern is None and self._closed >= CYCLES:
            self.pattern = Pattern(anchor=0, every=1, cycle=1)
        return True

    def start_over(self, source: str) -> None:
        """Learn from the beginning, from events of this source."""
        self.source = source
        self._fires.clear()
        self._known.clear()
        self._forget()

    def closed_plain(self, count: int) -> None:
        """Steps that the hot path has closed by itself."""
        self._closed += count
        self._without_anchor = 0
        self._fires.clear()

    def _forget(self) -> None:
        self.pattern = None
        self._tried = 0
        self._closed = 0
        self._anchor_fires = 0
        self._without_anchor = 0

    def _learn(self, who: int) -> bool:
        if who not in self._known:
            self._known.add(who)
            self._provisional = who
        self._tried += 1
        window = min(LAST_WINDOW, FIRST_WINDOW << min(self.relearned, 4))
        fires = list(self._fires)
        pattern = find_pattern(fires, window)
        if pattern is None and self._tried >= PATIENCE:
            pattern = best_guess(fires)
        self.pattern = pattern
        closing = pattern.anchor if pattern is not None else self._provisional
        if closing != self._provisional:  # this step began where another optimizer closed one
            self._closed = min(self._closed, SETTLING_STEPS - 1)
        if who != closing:
            return False
        self._closed += 1
        return True


class Usual:
    """How much of something a step holds as a rule; more than that is an evaluation.

    An RL loop rolls out without gradients in every step; that is its step, not an evaluation.
    """

    LEARN = 4

    def __init__(self) -> None:
        self._seen: list[int] = []

    @property
    def learnt(self) -> bool:
        """Enough steps have been counted."""
        return len(self._seen) >= self.LEARN

    def is_more(self, count: int) -> bool:
        """Take in one step's count; whether it is more than usual."""
        if len(self._seen) < self.LEARN:
            self._seen.append(count)
            return False
        self._seen.sort()
        return count > self._seen[self.LEARN // 2]
