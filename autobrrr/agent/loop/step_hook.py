"""The always-on hook: one closure that torch calls after every optimizer step.

It stands in for `Optimizer._optimizer_step_code`, the empty method that torch's step wrapper calls
between the update and the user's post hooks. A class attribute is replaced by one atomic store,
so hooks go on and off at any moment without touching a dict that torch is iterating.

In a plain step it only notes the time. Between two steps of a training job nothing of ours is in
any cache: a packed record costs 4 us there, a noted time a fraction of that. Whoever comes next
the slow way writes the records of the noted steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter_ns

HOOK_NS = 700  # the hook's own time in a plain step, until it is measured


@dataclass(slots=True, eq=False)
class Hot:
    """What the closure reads and writes at every step. Changed by one thread, poked by another.

    `live` is taken away before anything is removed; `busy` says that the training thread is inside
    slow work.
    """

    start: int  # ns: when the first step without a record began
    anchor: int = 0  # id of the optimizer that closes a step; 0: everything goes the slow way
    stamped: int = 0  # the same where steps are stamped by a device, and none but these go the short way
    left: int = 0  # plain steps until the slow way is due
    others: frozenset[int] = frozenset()  # ids of optimizers that fire within a step
    passes: int = 0  # fires of theirs until the slow way is due
    times: list[int] = field(default_factory=list)  # ends of plain steps that have no record yet
    owner: int = 0  # ident of the training thread; 0: not seen yet
    seq: int = 0  # of the first step without a record
    own: int = 0
    arm: int = 0
    flags: int = 0  # of the step that is running
    hook_ns: int = HOOK_NS
    live: bool = True
    busy: bool = False
    knocks: int = 0
    will: Callable[[], object] | None = None  # what is left to do at the next boundary

    @property
    def steps(self) -> int:
        """Steps that have ended."""
        return self.seq + len(self.times)

    def running_ns(self) -> int:
        """How long the step has run that is running. From any thread."""
        began = self.times[-1:] or [self.start]
        return perf_counter_ns() - began[0]

    def poke(self) -> None:
        """Let the end of this step go the slow way. From any thread."""
        self.knocks += 1
        self.anchor = self.stamped = 0
        self.others = frozenset()


def make_tap(
    hot: Hot,
    original: Callable[[object], object],
    slow: Callable[[object, int], None],
    fail: Callable[[BaseException], None],
    clock: Callable[[], int] = perf_counter_ns,
) -> Callable[[object], None]:
    """Build the hook around what stood there; that is called too."""
    note = hot.times.append

    # The parameter is called `self` because torch's own profiler reads that name from the frame.
    def tap(self: object) -> None:
        try:
            if id(self) == hot.anchor and hot.left:
                hot.left -= 1
                note(clock())
            elif id(self) in hot.others and hot.passes:
                hot.passes -= 1
            else:
                slow(self, clock())
        except Exception as error:  # noqa: BLE001
            fail(error)
        original(self)

    return tap
