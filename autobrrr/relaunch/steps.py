"""The steps of one trial as its agent records them: when, how long, how many samples, is the loss a number.

In: records of the ring. Out: durations between two moments, samples of a step, whether step times have
settled.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autobrrr.agent import ring
from autobrrr.sidecar.ring_reader import NO_RECORDS, Records, representative

MOST_KEPT = 1 << 16
FEWEST_TO_SETTLE = 4
SETTLING_NS = 250_000_000
SETTLED = 0.06
LOSSES = 3

Durations = NDArray[np.float64]


class Steps:
    """All steps of a trial so far."""

    def __init__(self) -> None:
        self._kept: Records = NO_RECORDS
        self._sampled: Records = NO_RECORDS
        self.count = 0
        self.last_end_ns: int | None = None
        self.first_end_ns: int | None = None

    def add(self, records: Records) -> None:
        if not len(records):
            return
        self.count += len(records)
        if self.first_end_ns is None:
            self.first_end_ns = int(records["end_ns"][0])
        self.last_end_ns = int(records["end_ns"][-1])
        fresh = representative(records)
        self._kept = np.concatenate([self._kept, fresh])[-MOST_KEPT:]
        self._sampled = np.concatenate([self._sampled, fresh[fresh["flags"] & ring.PHASES != 0]])[-256:]

    def between(self, start_ns: int, end_ns: int = 1 << 62) -> Durations:
        """Durations of the representative steps that lie wholly between two moments, in nanoseconds."""
        inside = (self._kept["start_ns"] >= start_ns) & (self._kept["end_ns"] <= end_ns)
        return _durations(self._kept[inside])

    @property
    def recent(self) -> Durations:
        return _durations(self._kept[-512:])

    @property
    def samples(self) -> int | None:
        """Samples of one step, over all its backward calls for one update; None where they are not seen."""
        known = self._sampled[self._sampled["samples"] > 0]
        if not len(known):
            return None
        rounds = np.maximum(1, np.round(known["backwards"] / np.maximum(1, known["fires"])))
        return int(np.median(known["samples"] * rounds))

    @property
    def reserved_bytes(self) -> int | None:
        """Most accelerator memory that was held; None without one."""
        held = self._sampled["reserved_bytes"]
        return int(held.max()) if len(held) and held.max() >= 0 else None

    @property
    def loss_lost(self) -> bool:
        """The latest losses are no finite numbers."""
        latest = self._sampled["loss_finite"][-LOSSES:]
        return len(latest) == LOSSES and bool((latest == 0).all())


def is_settled(durations: Durations) -> bool:
    """Step times no longer fall or rise: two neighbouring stretches of 0.25 s or 4 steps have one median."""
    if len(durations) < 2 * FEWEST_TO_SETTLE:
        return False
    typical = float(np.median(durations[-FEWEST_TO_SETTLE:]))
    width = max(FEWEST_TO_SETTLE, int(np.ceil(SETTLING_NS / max(typical, 1.0))))
    width = min(width, 200)
    if len(durations) < 2 * width:
        return False
    late, early = np.median(durations[-width:]), np.median(durations[-2 * width : -width])
    return bool(abs(np.log(late / early)) < SETTLED)


def _durations(records: Records) -> Durations:
    return np.asarray(records["end_ns"] - records["start_ns"], dtype=np.float64)
