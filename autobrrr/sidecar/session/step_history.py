"""The steps of the last minutes, one bucket a second, and those that took far longer than usual.

In: new records of the ring. Out: `wire_answers.StepHistory` for screens and for the log.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np
from numpy.typing import NDArray

from autobrrr.agent.wire import ring_layout
from autobrrr.diagnosis.measurements import Durations
from autobrrr.records.wire_answers import SlowStep, StepHistory
from autobrrr.sidecar.session.ring_reader import Records
from autobrrr.tuner.job_under_test import StepClock, durations_ns, timed

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
        self._slow: deque[tuple[int, int, int, int, int, str | None]] = deque(maxlen=SLOW_KEPT)
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
                SlowStep(
                    seq=seq,
                    before_ns=self._end_ns - end_ns,
                    ns=took_ns,
                    usual_ns=usual_ns,
                    why=why,
                    device_ns=device_ns or None,
                )
                for seq, end_ns, device_ns, took_ns, usual_ns, why in self._slow
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
            self._slow.append((seq, end_ns, device_ns, whole_ns, int(usual_ns), why))

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
