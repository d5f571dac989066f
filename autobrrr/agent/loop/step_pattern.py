"""What one step is: which optimizer's firing closes it, and when that has to be learned anew.

In: the ids of the optimizers, in the order in which they fire (or the events of a fallback
source). Out: whether this event closes a step, and whether the pattern is settled. Pure; one
thread. Several optimizers are taken apart by how often they fire: GAN, n_critic, actor and critic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

CYCLES = 3
SETTLING_STEPS = 6
PATIENCE = 48  # fires until what has not come three times is left out: a step is what happens in between
MOST_KNOWN = 1024  # a job may make an optimizer in each step


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """The optimizer that closes a step, and after about how many fires it comes again."""

    anchor: int
    cycle: int


def find_pattern(fires: Sequence[int], known: Collection[int]) -> Pattern | None:
    """Of the rarest optimizers, the one that was first seen last: critics come before generators.

    Args:
        known: In the order in which they were first seen.

    Returns:
        None until each has fired three times, or enough has fired to tell who has not.
    """
    if len(fires) < min(PATIENCE, CYCLES * len(known)):
        return None
    counted = Counter(fires)
    counts = {who: counted[who] for who in known}
    if min(counts.values()) < CYCLES and len(fires) < PATIENCE:
        return None
    counts = {who: n for who, n in counts.items() if n >= CYCLES} or counts
    rarest = min(counts.values())
    # Fires begin and end anywhere in a round, so equals may differ by one.
    anchor = [who for who, n in counts.items() if n <= rarest + 1][-1]
    return Pattern(anchor=anchor, cycle=max(len(known), len(fires) // max(1, counts[anchor])))


class StepPattern:
    """Learns the pattern, then says which event closes a step."""

    def __init__(self) -> None:
        self.source = "optimizer"
        self.pattern: Pattern | None = None
        self.relearned = 0
        self._fires: list[int] = []  # since learning began
        self._known: dict[int, None] = {}  # in the order in which they were first seen
        self._closed = 0
        self._without_anchor = 0

    @property
    def settling(self) -> bool:
        """Steps are not representative yet."""
        return self.pattern is None or self._closed <= SETTLING_STEPS

    @property
    def anchor(self) -> int:
        """The optimizer whose every fire closes a step; 0 where there is none."""
        return 0 if self.pattern is None else self.pattern.anchor

    @property
    def others(self) -> frozenset[int]:
        """The optimizers whose fires close no step."""
        return frozenset(self._known) - {self.anchor} if self.anchor else frozenset()

    def passed(self, count: int) -> None:
        """So many fires of others went the short way, and none of the anchor since."""
        self._without_anchor += count

    def fire(self, who: int) -> bool:
        """An optimizer has stepped. Returns whether that closes a step."""
        if self.source != "optimizer":
            self.start_over("optimizer")
        is_new = who not in self._known
        if is_new:
            if self.pattern is not None:
                self.relearned += 1
                self._known.clear()  # it may have come in place of them; who fires on is met again
            self._forget()
            self._known[who] = None
            if len(self._known) > MOST_KNOWN:
                del self._known[next(iter(self._known))]
        if self.pattern is None:
            return self._learn(who)
        if who != self.pattern.anchor:
            self._without_anchor += 1
            if self._without_anchor > 4 * self.pattern.cycle + 8:
                self.relearned += 1
                self._known.pop(self.pattern.anchor, None)
                self._forget()
            return False
        self._without_anchor = 0
        self._closed += 1
        return True

    def event(self, source: str) -> bool:
        """An event of a fallback source: backward, forward or loader. Closes a step if it is ours."""
        if source != self.source:
            return False
        self._closed += 1
        if self.pattern is None and self._closed >= CYCLES:
            self.pattern = Pattern(anchor=0, cycle=1)
        return True

    def start_over(self, source: str) -> None:
        """Learn from the beginning, from events of this source."""
        self.source = source
        self._known.clear()
        self._forget()

    def closed_plain(self, count: int) -> None:
        """Steps that the hot path has closed by itself."""
        self._closed += count
        self._without_anchor = 0

    def _forget(self) -> None:
        self.pattern = None
        self._fires.clear()
        self._closed = 0
        self._without_anchor = 0

    def _learn(self, who: int) -> bool:
        """Until the pattern is known, the optimizer that was first seen last closes steps."""
        self._fires.append(who)
        self.pattern = find_pattern(self._fires, self._known)
        last = next(reversed(self._known))
        closing = self.anchor or last
        if closing != last:  # this step began where another optimizer closed one
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

    @property
    def usual(self) -> int | None:
        """As a rule so much; None until enough steps have been counted."""
        return sorted(self._seen)[self.LEARN // 2] if self.learnt else None

    def is_more(self, count: int) -> bool:
        """Take in one step's count; whether it is more than usual."""
        usual = self.usual
        if usual is None:
            self._seen.append(count)
        return usual is not None and count > usual
