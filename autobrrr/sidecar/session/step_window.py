"""The steps of a job as the ring tells them: those that stand for how it trains now, and the last minutes.

In: new records of the ring. Out: step durations, their statistics, phase figures; `StepHistory`. When a
remedy changes, the steps before it no longer count. On a device that works asynchronously only steps count
whose ends it has stamped; phases are the host's time on any device.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from autobrrr.agent.wire import ring_layout
from autobrrr.diagnosis.measurements import Durations, PhaseFigures, phase_figures, step_stats
from autobrrr.records import StepStats
from autobrrr.records.wire_answers import SlowStep, StepHistory
from autobrrr.sidecar.session.ring_reader import NO_RECORDS, Records, representative
from autobrrr.tuner.job_under_test import StepClock, durations_ns, timed
from autobrrr.tuner.token_adjustment import tokens_a_sample, vary

WINDOW_NS = 30_000_000_000
WINDOW_STEPS = 64  # at least so many, however long they take
MOST_STEPS = 4096
MOST_SAMPLED = 512
MOST_PROFILED = 32
LOSSES = 3  # one may be the loss scaler's doing


class StepWindow:
    """Representative steps of the last half minute, at least 64, at most 4096."""

    def __init__(self) -> None:
        self._recent: Records = NO_RECORDS
        self._sampled: Records = NO_RECORDS
        self.evaluated: list[tuple[int, int]] = []  # steps with an evaluation meanwhile: number, duration
        self._arm: int | None = None
        self.clock: StepClock = "host"
        self._profiled: Records = NO_RECORDS  # the latest steps that were profiled, one after another
        self.seen = 0  # all records, representative or not
        self.last_end_ns: int | None = None  # of the last step of any kind
        self.last_ns = 0  # duration of the last step of any kind
        self.longest_ns = 0

    def add(self, records: Records) -> None:
        """Take in what the ring gave."""
        if len(records) == 0:
            return
        self.pass_over(records)
        arm = int(records["arm"][-1])
        if arm != self._arm:
            self._arm, self._recent, self._sampled, self.evaluated = arm, NO_RECORDS, NO_RECORDS, []
        of_arm = records[records["arm"] == arm]
        fresh = representative(of_arm)
        self._recent = _recent(np.concatenate([self._recent, fresh]))
        more = of_arm[of_arm["flags"] & ring_layout.UNREPRESENTATIVE == ring_layout.EVALUATION]
        found = [*self.evaluated, *zip(more["seq"].tolist(), durations(more).tolist(), strict=True)]
        first = int(self._recent["seq"][0]) if len(self._recent) else 0
        self.evaluated = [one for one in found if one[0] > first][-MOST_SAMPLED:]
        sampled = fresh[fresh["flags"] & ring_layout.PHASES != 0]
        self._sampled = np.concatenate([self._sampled, sampled])[-MOST_SAMPLED:]

    def pass_over(self, records: Records) -> None:
        """Take note of steps that do not stand for how the job trains; there must be some."""
        self.seen += len(records)
        for one in records[records["flags"] & ring_layout.TRACED != 0][-MOST_PROFILED:]:
            follows = len(self._profiled) and int(one["seq"]) == int(self._profiled["seq"][-1]) + 1
            before = self._profiled if follows else NO_RECORDS
            self._profiled = np.concatenate([before, one[np.newaxis]])[-MOST_PROFILED:]
        self.last_end_ns = int(records["end_ns"][-1])
        self.last_ns = int(records["end_ns"][-1] - records["start_ns"][-1])
        self.longest_ns = max(self.longest_ns, int((records["end_ns"] - records["start_ns"]).max()))

    @property
    def loss_lost(self) -> bool:
        """The latest sampled losses are no longer finite; false where that is not known."""
        latest = self._sampled["loss_finite"][-LOSSES:]
        return len(latest) == LOSSES and bool((latest == 0).all())

    @property
    def lengths_vary(self) -> bool:
        """Samples are longer in one step than in another."""
        return vary(tokens_a_sample(self._sampled))

    @property
    def count(self) -> int:
        """Representative steps in the window."""
        return len(self._recent)

    @property
    def standing(self) -> Literal["none", "none counts", "some count"]:
        """Whether steps have ended, and whether there are durations of such as count."""
        if len(self.step_ns):
            return "some count"
        return "none counts" if self.seen else "none"

    @property
    def median_ns(self) -> float | None:
        """Median duration; None while the window is empty."""
        return float(np.median(self.step_ns)) if len(self.step_ns) else None

    @property
    def step_ns(self) -> Durations:
        """Durations, oldest first, shape [steps]."""
        return durations_ns(timed(self._recent, self.clock)).astype(np.int64)

    @property
    def last_seq(self) -> int:
        """Of the latest step that counts; -1 while there is none."""
        return int(self._recent["seq"][-1]) if len(self._recent) else -1

    def step_ns_after(self, seq: int, count: int) -> list[int]:
        """Durations of the first so many steps after that one; empty while there are fewer."""
        found = durations_ns(timed(self._recent[self._recent["seq"] > seq], self.clock))[:count]
        return [int(each) for each in found] if len(found) == count else []

    @property
    def ahead(self) -> NDArray[np.bool_]:
        """Of the steps that a device has stamped: whether the host ran ahead of it by a step or more."""
        stamped = timed(self._recent, "device")
        return np.asarray(stamped["flags"] & ring_layout.AHEAD != 0)

    @property
    def profiled_ns(self) -> list[int]:
        """Of the steps that were last profiled or traced; empty where this clock did not see them."""
        return [int(each) for each in durations_ns(timed(self._profiled, self.clock))]

    @property
    def stats(self) -> StepStats:
        """Count, mean, median, p99 of the window."""
        return step_stats(self.step_ns)

    @property
    def phases(self) -> PhaseFigures | None:
        """Phases over the sampled steps; None before there is one."""
        columns = {name: self._sampled[name].astype(np.int64) for name in ring_layout.SAMPLED_FIELDS}
        return phase_figures(durations(self._sampled), columns)


def durations(records: Records) -> Durations:
    """`end_ns - start_ns`, shape [records]: without the agent's own work at boundaries."""
    return np.asarray(records["end_ns"] - records["start_ns"], dtype=np.int64)


def _recent(records: Records) -> Records:
    records = records[-MOST_STEPS:]
    if len(records) <= WINDOW_STEPS:
        return records
    young = int((records["end_ns"] > records["end_ns"][-1] - WINDOW_NS).argmax())
    return records[min(young, len(records) - WINDOW_STEPS) :]


BUCKET_NS = 1_000_000_000
BUCKETS = 600
SLOW = 3.0  # times the median
PAUSE_NS = 50_000_000  # of ours before a step: shorter ones nobody notices
SLOW_KEPT = 64
MOST_IN_BUCKET = 1 << 17  # steps; a clock that stands still would fill one for ever
BINS = 24
CAUSES = (
    (ring_layout.COMPILED, "autobrrr: compiling for a trial"),
    (ring_layout.TRACED, "autobrrr: measuring"),
    (ring_layout.SWITCHED, "autobrrr: switching a remedy"),
    (ring_layout.SETTLING, "autobrrr: putting hooks on"),
    (ring_layout.EVALUATION, "with evaluation"),
    (ring_layout.SKIPPED, "optimizer skipped"),
)


class Buckets:
    """Grows with the job; what is older than ten minutes goes."""

    def __init__(self) -> None:
        self._closed: deque[tuple[int, int, int]] = deque(maxlen=BUCKETS)  # number, median, longest
        self._open: list[NDArray[np.int64]] = []
        self._number: int | None = None
        self._slow: deque[tuple[int, SlowStep]] = deque(maxlen=SLOW_KEPT)  # each with when it ended
        self._usual_ns: float | None = None
        self._end_ns = 0
        self._last_ns: int | None = None

    def add(self, records: Records, clock: StepClock = "host") -> None:
        """Take in what the ring gave, in its order: those of its steps whose time this clock shows."""
        records = timed(records, clock)
        if len(records) == 0:
            return
        took = durations_ns(records).astype(np.int64)
        numbers = np.asarray(records["end_ns"] // BUCKET_NS, dtype=np.int64)
        self._mark_slow(records, took)
        for number in np.unique(numbers)[-BUCKETS:]:
            if self._number is not None and number != self._number:
                self._close()
            self._number = int(number)
            if sum(map(len, self._open)) < MOST_IN_BUCKET:
                self._open.append(took[numbers == number])
        self._end_ns, self._last_ns = int(records["end_ns"][-1]), int(took[-1])

    def history(self, window: Durations) -> StepHistory:
        """What a screen shows.

        Args:
            window: Durations of the steps that stand for the job now, for the histogram.
        """
        found = {number: (median, longest) for number, median, longest in self._closed}
        if self._number is not None and self._open:
            found[self._number] = self._figures()
        newest = max(found, default=0)
        oldest = max(min(found, default=0), newest - BUCKETS + 1)
        row = [found.get(number) for number in range(oldest, newest + 1)] if found else []
        edges, counts = histogram(window)
        return StepHistory(
            bucket_ns=BUCKET_NS,
            median_ns=[None if each is None else each[0] for each in row],
            longest_ns=[None if each is None else each[1] for each in row],
            last_ns=self._last_ns,
            edges_ns=edges,
            counts=counts,
            slow=[
                msgspec.structs.replace(slow, before_ns=self._end_ns - end_ns) for end_ns, slow in self._slow
            ],
        )

    def _mark_slow(self, records: Records, took: NDArray[np.int64]) -> None:
        usual_ns = self._usual_ns
        if usual_ns is None:
            usual_ns = float(np.median(took)) if len(took) >= 4 else math.inf
        paused = records["own_ns"] > max(PAUSE_NS, SLOW * usual_ns)
        for index in np.flatnonzero(paused | (took > SLOW * usual_ns))[-SLOW_KEPT:]:
            one = records[index]
            seq, end_ns, own_ns, device_ns, flags = (
                int(one[name]) for name in ("seq", "end_ns", "own_ns", "device_ns", "flags")
            )
            why = _why(flags) or ("autobrrr: measuring" if paused[index] else None)
            whole_ns = int(took[index]) + own_ns * int(paused[index])
            slow = SlowStep(
                seq=seq,
                before_ns=0,
                ns=whole_ns,
                usual_ns=int(usual_ns),
                why=why,
                device_ns=device_ns or None,
            )
            self._slow.append((end_ns, slow))

    def _close(self) -> None:
        if self._number is not None and self._open:
            median_ns, longest_ns = self._figures()
            self._closed.append((self._number, median_ns, longest_ns))
            self._usual_ns = float(median_ns)
        self._open = []

    def _figures(self) -> tuple[int, int]:
        took = np.concatenate(self._open)
        return int(np.median(took)), int(took.max())


def histogram(took: Durations) -> tuple[list[int], list[int]]:
    """Edges and counts, the bins evenly wide on a logarithmic axis; nothing for fewer than two steps."""
    if len(took) < 2:
        return [], []
    low, high = max(1, int(took.min())), max(2, int(took.max()) + 1)
    edges = np.geomspace(low, max(high, low * 1.05), BINS + 1)
    counts, _ = np.histogram(took, edges)
    return [round(edge) for edge in edges], [int(count) for count in counts]


def _why(flags: int) -> str | None:
    return next((why for flag, why in CAUSES if flags & flag), None)
