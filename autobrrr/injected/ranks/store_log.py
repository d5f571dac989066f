"""A register in the job's own store, which ranks on several machines share: an answer takes a while.

What was put first stands for all, by the store's compare-and-set. In: keys and values, of all ranks. Out:
what stands. The last rank to leave deletes all of it; what is left where ranks died goes with the job.
"""

from __future__ import annotations

import time
from contextlib import suppress

from .job_store import JobStore
from .shared_log import RegisterLost
from .switch_protocol import RegisterTiming, outcome_key, plan_key, ready_key

FOLDER = "log/"
LEAD_S, SETTLE_S = 0.5, 0.25
ANSWERS_AHEAD = 8  # a plan is made so many of the slowest answers ahead, and settled half as many
BUSY_MS, QUIET_MS = 50, 2000
MOST_DELETED = 1000


class StoreLog:
    """One rank's way to it. From any thread; each question may take seconds. Raises RegisterLost.

    Args:
        store: Asked by nobody else who would be kept waiting.
    """

    def __init__(self, store: JobStore, rank: int, ranks: int) -> None:
        self._store, self._rank, self._ranks = store, rank, ranks
        self._known: dict[str, str] = {}
        self._said: str | None = None  # what we put last that is ours alone
        self._slowest_s = 0.0
        store.put(_here(rank), "here", stays=True)

    @property
    def timing(self) -> RegisterTiming:
        """By how long it has taken to answer."""
        ahead_s = ANSWERS_AHEAD * self._slowest_s
        return RegisterTiming(
            lead_s=max(LEAD_S, ahead_s),
            settle_s=max(SETTLE_S, ahead_s / 2),
            busy_ms=BUSY_MS,
            quiet_ms=QUIET_MS,
        )

    def put(self, key: str, value: str) -> str:
        """What stands at the key: `value`, unless something stood there before."""
        began_s = time.monotonic()
        standing = self._known.get(key) or self._store.put(FOLDER + key, value, stays=True)
        self._slowest_s = max(self._slowest_s, time.monotonic() - began_s)
        self._known[key] = standing
        if key.endswith(ready_key(0, self._rank)[1:]) and key != self._said:
            before, self._said = self._said, key
            if before is not None:
                self._store.delete([FOLDER + before])
        return standing

    def get(self, key: str) -> str | None:
        """What stands at the key; None: nothing."""
        standing = self._known.get(key)
        if standing is None:
            standing = self._store.get(FOLDER + key)
            if standing is not None:
                self._known[key] = standing
        return standing

    def plans(self) -> int:
        """The number of the last plan that stands there; 0 where none does."""
        last, step = 0, 1
        while self._stands(last + step):
            last, step = last + step, 2 * step
        while step > 1:
            step //= 2
            if self._stands(last + step):
                last += step
        return last

    def leave(self) -> None:
        """Nothing is asked any more. The last one deletes what all have put."""
        with suppress(RegisterLost):
            self._store.delete([_here(self._rank)])
            if not any(self._store.get(_here(rank)) for rank in range(self._ranks)):
                self._delete(range(1, self.plans() + 1))

    def _delete(self, plans: range) -> None:
        last = (ready_key(plan, rank) for plan in plans[-2:] for rank in range(self._ranks))
        names = [*last, *(name(plan) for plan in reversed(plans) for name in (outcome_key, plan_key))]
        for start in range(0, len(names), MOST_DELETED):
            self._store.delete(FOLDER + name for name in names[start : start + MOST_DELETED])

    def _stands(self, plan: int) -> bool:
        return self._store.get(FOLDER + plan_key(plan)) is not None


def _here(rank: int) -> str:
    return f"here/{rank}"
