"""The history has one bucket a second, and remembers the steps that took far longer."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.agent.wire import ring_layout
from autobrrr.records.wire_answers import StepHistory
from autobrrr.sidecar.session.ring_reader import RingReader
from autobrrr.sidecar.session.step_window import BINS, BUCKETS, SLOW_KEPT, Buckets, histogram
from support.sessions.sidecar import MS, RingWriter

NO_STEPS = np.empty(0, dtype=np.int64)


class Loop:
    """A job whose steps end one after the other; the clock starts at a whole second."""

    def __init__(self) -> None:
        self.writer = RingWriter(8192)
        self.reader = RingReader(self.writer.fd)
        self.buckets = Buckets()

    def train(self, steps: int, step_ns: int, own_ns: int = 0, **fields: int) -> StepHistory:
        for _ in range(steps):
            self.writer.step(step_ns, own_ns=own_ns, **fields)
        self.buckets.add(self.reader.read_new())
        return self.buckets.history(NO_STEPS)


def test_every_second_is_one_bucket_whether_read_at_once_or_in_parts() -> None:
    whole, parts = Loop(), Loop()
    expected = whole.train(25, 100 * MS)
    for _ in range(25):
        found = parts.train(1, 100 * MS)
    assert found == expected
    assert found.median_ns == [100 * MS] * 3
    assert found.last_ns == 100 * MS


def test_a_second_without_a_step_is_a_hole_and_no_zero() -> None:
    loop = Loop()
    loop.train(10, 90 * MS)
    found = loop.train(1, 3_000 * MS)
    assert found.median_ns == [90 * MS, None, None, 3_000 * MS]


def test_a_slow_step_is_remembered_with_its_number_and_cause() -> None:
    loop = Loop()
    loop.train(30, 50 * MS)
    loop.train(1, 400 * MS, flags=ring_layout.TRACED)
    loop.train(1, 200 * MS)
    found = loop.train(4, 50 * MS)
    assert [(each.seq, each.ns, each.usual_ns, each.why) for each in found.slow] == [
        (30, 400 * MS, 50 * MS, "autobrrr: measuring"),
        (31, 200 * MS, 50 * MS, None),
    ]
    assert found.slow[1].before_ns == 200 * MS


def test_a_pause_of_ours_before_a_step_is_part_of_it_and_named() -> None:
    loop = Loop()
    loop.train(30, 50 * MS)
    loop.train(1, 60 * MS, own_ns=140 * MS)
    loop.train(1, 60 * MS, own_ns=12_200 * MS, flags=ring_layout.SWITCHED)
    found = loop.train(1, 9_000 * MS, flags=ring_layout.COMPILED)
    assert [(each.seq, each.ns, each.why) for each in found.slow] == [
        (31, 12_260 * MS, "autobrrr: switching a remedy"),
        (32, 9_000 * MS, "autobrrr: compiling for a trial"),
    ]


def test_memory_stays_bounded() -> None:
    loop = Loop()
    for _ in range(SLOW_KEPT + 5):
        loop.train(BUCKETS // SLOW_KEPT, 950 * MS)
        found = loop.train(1, 5_000 * MS)
    assert len(found.median_ns) == BUCKETS
    assert len(found.slow) <= SLOW_KEPT


@given(st.lists(st.integers(1, 10**10), min_size=2, max_size=200))
def test_every_step_is_in_one_bin(took: list[int]) -> None:
    edges, counts = histogram(np.array(took, dtype=np.int64))
    assert (len(edges), len(counts)) == (BINS + 1, BINS)
    assert sum(counts) == len(took)
    assert edges == sorted(edges)


def test_on_a_device_the_history_is_of_the_device_s_clock() -> None:
    loop = Loop()
    for device_ns in (0, 5 * MS, 0, 40 * MS):
        loop.writer.step(MS, own_ns=0, device_ns=device_ns)
    for _ in range(8):
        loop.writer.step(MS, own_ns=0, device_ns=5 * MS)
    loop.buckets.add(loop.reader.read_new(), "device")
    found = loop.buckets.history(NO_STEPS)
    assert (found.median_ns, found.longest_ns) == ([5 * MS], [40 * MS])
    assert [(each.seq, each.ns, each.device_ns) for each in found.slow] == [(3, 40 * MS, 40 * MS)]
