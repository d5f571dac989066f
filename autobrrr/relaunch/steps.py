"""The steps of one trial as its agent records them: when, how long, what they hold, is the loss a number.

In: records of the ring. Out: durations between two moments, samples and tokens of a step, whether step times
have settled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autobrrr.agent import ring
from autobrrr.sidecar.ring_reader import NO_RECORDS, Records, representative

MOST_KEPT = 1 << 16
FEWEST_TO_SETTLE = 4
SETTLING_NS = 250_000_000
SETTLED = 0.06
LOSSES = 3

VARIES = 0.05  # tokens of a sample, from the 5th to the 95th percentile, against their median
FEWEST_TO_VARY = 4

Durations = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Neighbouring steps of one trial.

    Attributes:
        steps: Nanoseconds of each step.
        counted: Nanoseconds of those of them whose tokens are known.
        tokens: Of the steps in `counted`, each.
    """

    steps: Durations
    counted: Durations
    tokens: NDArray[np.float64]


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
        return _durations(self._inside(start_ns, end_ns))

    def block(self, start_ns: int, settle: int = 0) -> Block:
        """The representative steps since a moment, without the first few."""
        found = self._inside(start_ns, 1 << 62)[settle:]
        counted = found[(found["flags"] & ring.PHASES != 0) & (found["tokens"] > 0)]
        tokens = np.asarray(counted["tokens"], dtype=np.float64)
        return Block(steps=_durations(found), counted=_durations(counted), tokens=tokens)

    @property
    def recent(self) -> Durations:
        return _durations(self._kept[-1024:])

    @property
    def samples(self) -> int | None:
        """Samples of one step, over all its backward calls for one update; None where they are not seen."""
        known = self._sampled[self._sampled["samples"] > 0]
        return int(np.median(_samples_of(known))) if len(known) else None

    @property
    def tokens(self) -> float | None:
        """Mean tokens of one step; None where they are not seen."""
        known = self._sampled[self._sampled["tokens"] > 0]
        return float(known["tokens"].mean()) if len(known) else None

    @property
    def tokens_a_sample(self) -> float | None:
        """Mean over the steps in which both are seen; None without one."""
        each = self._tokens_a_sample()
        return float(each.mean()) if len(each) else None

    @property
    def hardly_seen(self) -> bool:
        """Steps show tokens, but so few of them that it can't be told whether samples differ in length."""
        return 0 < len(self._tokens_a_sample()) < FEWEST_TO_VARY

    @property
    def vary_in_length(self) -> bool:
        """Samples are longer in one step than in another; false also while few have been seen."""
        each = self._tokens_a_sample()
        if len(each) < FEWEST_TO_VARY:
            return False
        low, middle, high = np.quantile(each, (0.05, 0.5, 0.95))
        return bool(high - low > VARIES * middle)

    def _tokens_a_sample(self) -> NDArray[np.float64]:
        known = self._sampled[(self._sampled["tokens"] > 0) & (self._sampled["samples"] > 0)]
        return np.asarray(known["tokens"] / _samples_of(known), dtype=np.float64)

    def _inside(self, start_ns: int, end_ns: int) -> Records:
        inside: Records = self._kept[(self._kept["start_ns"] >= start_ns) & (self._kept["end_ns"] <= end_ns)]
        return inside

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
    """Step times no longer fall or rise: two neighbouring stretches of 0.25 s or 4 steps have one median.

    Where others use the machine too, medians may go on to differ: then they go up as well as down.
    """
    if len(durations) < 2 * FEWEST_TO_SETTLE:
        return False
    typical = float(np.median(durations[-FEWEST_TO_SETTLE:]))
    width = max(FEWEST_TO_SETTLE, int(np.ceil(SETTLING_NS / max(typical, 1.0))))
    width = min(width, 200)
    medians = [
        float(np.median(durations[len(durations) - (i + 1) * width : len(durations) - i * width]))
        for i in range(min(4, len(durations) // width))
    ]
    if len(medians) < 2:
        return False
    if abs(np.log(medians[0] / medians[1])) < SETTLED:
        return True
    late, early = medians[:2], medians[2:]
    return len(early) == 2 and min(late) <= max(early) and min(early) <= max(late)


def _samples_of(known: Records) -> NDArray[np.float64]:
    """Samples of each of these steps, over all its backward calls for one update."""
    rounds = np.maximum(1, np.round(known["backwards"] / np.maximum(1, known["fires"])))
    return np.asarray(known["samples"] * rounds, dtype=np.float64)


def _durations(records: Records) -> Durations:
    return np.asarray(records["end_ns"] - records["start_ns"], dtype=np.float64)
