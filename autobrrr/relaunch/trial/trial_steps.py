"""The steps of one trial as its agent records them: when, how long, what they hold, is the loss a number.

In: records of the ring. Out: durations between two moments, samples and tokens of a step, whether step times
have settled.
"""

from __future__ import annotations

import numpy as np

from autobrrr.agent.wire import ring_layout
from autobrrr.sidecar.session.ring_reader import NO_RECORDS, Records, representative
from autobrrr.tuner.job_under_test import StepClock, durations_ns, timed
from autobrrr.tuner.token_adjustment import (
    FEWEST_TO_VARY,
    Durations,
    TokenBlock,
    block_of,
    samples_of,
    tokens_a_sample,
    vary,
)

MOST_KEPT, MOST_SAMPLED = 1 << 16, 256
FEWEST_TO_SETTLE = 4
SETTLING_NS = 250_000_000
SETTLED = 0.06
LOSSES = 3


class TrialSteps:
    """All steps of a trial so far."""

    def __init__(self) -> None:
        self.clock: StepClock = "host"
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
        sampled = fresh[fresh["flags"] & ring_layout.PHASES != 0]
        self._sampled = np.concatenate([self._sampled, sampled])[-MOST_SAMPLED:]

    def block(self, start_ns: int, settle: int = 0) -> TokenBlock:
        """The representative steps that began after a moment, without the first few."""
        return block_of(timed(self._kept[self._kept["start_ns"] >= start_ns], self.clock)[settle:])

    @property
    def recent(self) -> Durations:
        return durations_ns(timed(self._kept[-1024:], self.clock))

    @property
    def typical_ns(self) -> float:
        """Median of the recent steps; 0 without one."""
        return float(np.median(self.recent[-64:])) if len(self.recent) else 0.0

    @property
    def lack_stamps(self) -> bool:
        """They are those of a device that works asynchronously, and its clock is not seen."""
        return self.clock != "host" and len(self._kept) > 0 and not len(self.recent)

    @property
    def samples(self) -> int | None:
        """Samples of one step, over all its backward calls for one update; None where they are not seen."""
        known = self._sampled[self._sampled["samples"] > 0]
        return int(np.median(samples_of(known))) if len(known) else None

    def phases_ns(self, start_ns: int) -> tuple[dict[str, float], dict[str, float]]:
        """Nanoseconds of one step by phase, of steps that began after a moment; `other` is the rest.

        Their lower quartiles, as what others take of the CPU only adds, and their means. Empty: not measured.
        """
        seen = self._sampled[self._sampled["start_ns"] >= start_ns]
        if not len(seen):
            return {}, {}
        names = ("data_wait", "forward", "backward", "optimizer")
        spent = {name: np.maximum(seen[f"{name}_ns"], 0) for name in names}
        spent["other"] = np.maximum(seen["end_ns"] - seen["start_ns"] - sum(spent.values()), 0)
        return (
            {name: float(np.quantile(each, 0.25)) for name, each in spent.items()},
            {name: float(np.mean(each)) for name, each in spent.items()},
        )

    @property
    def tokens(self) -> float | None:
        """Mean tokens of one step; None where they are not seen."""
        known = self._sampled[self._sampled["tokens"] > 0]
        return float(known["tokens"].mean()) if len(known) else None

    @property
    def hardly_seen(self) -> bool:
        """Steps show tokens, but so few of them that it can't be told whether samples differ in length."""
        return 0 < len(tokens_a_sample(self._sampled)) < FEWEST_TO_VARY

    @property
    def vary_in_length(self) -> bool:
        """Samples are longer in one step than in another; false also while few have been seen."""
        return vary(tokens_a_sample(self._sampled))

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
    width = min(200, max(FEWEST_TO_SETTLE, int(np.ceil(SETTLING_NS / max(typical, 1.0)))))
    ends = range(len(durations), max(0, len(durations) - 4 * width), -width)
    medians = [float(np.median(durations[end - width : end])) for end in ends if end >= width]
    if len(medians) < 2:
        return False
    late, early = medians[:2], medians[2:]
    if abs(np.log(late[0] / late[1])) < SETTLED:
        return True
    return len(early) == 2 and min(late) <= max(early) and min(early) <= max(late)
