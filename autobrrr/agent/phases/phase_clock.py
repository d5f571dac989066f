"""Where a sampled step's time goes: a small state machine fed by the phase hooks.

In: what happens (root calls, backward, loader, optimizer) with its time. Out: nanoseconds by
phase; they and the rest sum to the step. `shown` is the phase of this moment. Pure: no torch, the clock comes
in as arguments; one thread.

Loss belongs to forward, zero_grad to the optimizer. Time after a root call is forward if a
backward or another root follows, and other if the same root is called again (a rollout). A traced step
keeps when each phase began, and the times of the former: an environment's step between two networks' calls is
no loss. All that happens while a batch is being loaded is loading: transforms may be modules too.
"""

from __future__ import annotations

from _thread import get_ident
from collections import deque

OTHER, DATA_WAIT, FORWARD, BACKWARD, OPTIMIZER = range(5)
_GAP, _UNDECIDED = 5, 6  # after a root call; inside optimizer.step before any backward in it
NAMES = ("other", "data_wait", "forward", "backward", "optimizer")
_SHOWN = (OTHER, DATA_WAIT, FORWARD, BACKWARD, OPTIMIZER, FORWARD, OPTIMIZER)


class PhaseClock:
    """One step's phases."""

    def __init__(self) -> None:
        self.on = False  # hooks pass through while it is off,
        self.owner = 0  # ... and on other threads than this one, which trains
        self.texts: deque[object] = deque(maxlen=8)  # of batches; nobody has looked into them yet
        self.traced = False  # the step that begins keeps `moves` and `pauses`
        self.begin(0)

    def begin(self, now: int) -> None:
        """A step begins."""
        self._spent = [0] * 7
        self.moves: list[tuple[int, int]] = []  # when each phase began, and which, as an index into `NAMES`
        self.pauses: list[tuple[int, int]] = []  # of forward: between root calls, or before backward
        self._gaps: list[tuple[int, int]] = []  # the same, undecided
        self._now = OTHER
        self._since = now
        self._depth = 0
        self._aside = [0] * 5  # by phase: how deep in what is told as that whatever it lies in
        self._saved = OTHER
        self._updating = False
        self._roots: list[int] = []
        self.backward_depth = 0
        self.backwards = 0
        self.fires = 0
        self.quiet_calls = 0
        self.samples, self.guessed = -1, False  # by a call without gradients
        self._tokens_loaded = 0
        self._tokens_of: tuple[int, int] = (0, 0)  # the root whose calls show tokens, and how many
        self.loss: object = None  # what the last backward was called on

    @property
    def hears(self) -> bool:
        """A hook is called on the thread that trains, in a sampled step."""
        return self.on and get_ident() == self.owner

    @property
    def shown(self) -> int:
        """The phase of this moment, as an index into `NAMES`."""
        return _SHOWN[self._now]

    @property
    def loading(self) -> bool:
        """A batch is being loaded at this moment."""
        return self._aside[DATA_WAIT] > 0

    @property
    def tokens(self) -> int:
        """Of the step so far: what its model was called with, else what was loaded for it; -1: not known."""
        return self._tokens_of[1] or self._tokens_loaded or -1

    def tokens_loaded(self, count: int) -> None:
        """A batch with so many tokens has come from a loader; -1: not known. One in it counts not."""
        if not self._aside[DATA_WAIT]:
            self._tokens_loaded += max(0, count)

    def wants_tokens(self, root: int, *, grad: bool) -> bool:
        """Whether the tokens of a call that begins are to be counted: training, of one root, from outside."""
        if not grad or self.backward_depth or self._depth or self._aside[DATA_WAIT]:
            return False
        return self._tokens_of[0] in (0, root)

    def tokens_called(self, root: int, count: int) -> None:
        """A root is called with so many tokens; -1: not known. Another one, a decoder, sees the same text."""
        if count > 0:
            self._tokens_of = root, self._tokens_of[1] + count

    def finish(self, now: int) -> tuple[int, int, int, int, int]:
        """The step ends: nanoseconds of other, data_wait, forward, backward, optimizer."""
        self._to(OTHER, now)
        self._decide(OTHER, OPTIMIZER)
        spent = self._spent
        return spent[OTHER], spent[DATA_WAIT], spent[FORWARD], spent[BACKWARD], spent[OPTIMIZER]

    def root_enter(self, root: int, now: int, *, grad: bool) -> None:
        """A root module's forward is entered."""
        if self.backward_depth or self._aside[DATA_WAIT]:
            return  # activation checkpointing computes forward again: that is backward
        self._depth += 1
        if self._depth > 1:
            return
        self.quiet_calls += not grad
        again = root in self._roots
        self._roots.append(root)
        self._to(FORWARD, now)
        self._decide(OTHER if again else FORWARD, OTHER)

    def root_exit(self, now: int, *, grad: bool) -> None:
        """A root module's forward is left."""
        if self.backward_depth or self._aside[DATA_WAIT] or not self._depth:
            return
        self._depth -= 1
        if not self._depth:
            self._to(_GAP if grad else _UNDECIDED if self._updating else OTHER, now)

    def backward_enter(self, now: int) -> None:
        """A backward is entered; nested ones count for the outermost."""
        self.backward_depth += 1
        if self.backward_depth == 1:
            self._to(BACKWARD, now)
            self._decide(FORWARD, OTHER)
            self._depth = 0
            self._roots.clear()

    def backward_exit(self, now: int) -> None:
        """A backward is left."""
        if not self.backward_depth:
            return  # the step was closed within it: there backward marks the steps
        self.backward_depth -= 1
        if not self.backward_depth:
            self.backwards += 1
            self._to(OPTIMIZER if self._updating else OTHER, now)

    def aside_enter(self, phase: int, now: int) -> None:
        """The next batch is asked for (`DATA_WAIT`), or gradients are being cleared (`OPTIMIZER`)."""
        self._aside[phase] += 1
        if self._aside[phase] == 1:
            self._saved = self._now
            self._to(phase, now)

    def aside_exit(self, phase: int, now: int) -> None:
        """The batch is there, the gradients are cleared: what ran before goes on."""
        if self._aside[phase]:
            self._aside[phase] -= 1
            if not self._aside[phase]:
                self._to(self._saved, now)

    def update_enter(self, now: int) -> None:
        """An optimizer's step is entered; one within a backward is a part of that."""
        if self.backward_depth:
            return
        self._updating = True
        self._to(_UNDECIDED, now)
        self._decide(OTHER, OTHER, undecided=False)

    def update_exit(self, now: int) -> None:
        """An optimizer's step is left, not the one that closes the step of the loop."""
        self._to(OTHER, now)
        self._decide(OTHER, OPTIMIZER)
        self._updating = False
        self.fires += 1

    def _to(self, phase: int, now: int) -> None:
        if self.traced:
            self.moves.append((now, _SHOWN[phase]))
            if self._now == _GAP:
                self._gaps.append((self._since, now))
        self._spent[self._now] += now - self._since
        self._since = now
        self._now = phase

    def _decide(self, gap: int, undecided_is: int, *, undecided: bool = True) -> None:
        """What the undecided times were, now that it shows."""
        spent = self._spent
        spent[gap] += spent[_GAP]
        spent[_GAP] = 0
        if gap == FORWARD:
            self.pauses += self._gaps
        self._gaps.clear()
        if undecided:
            spent[undecided_is] += spent[_UNDECIDED]
            spent[_UNDECIDED] = 0
