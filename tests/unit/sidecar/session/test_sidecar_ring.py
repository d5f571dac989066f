"""The ring reader gives every record once, in order, and says what it has lost."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.agent.wire import ring_layout
from autobrrr.sidecar.session.ring_reader import NoRing, Records, RingReader, representative
from autobrrr.tuner.job_under_test import STEP
from support.sessions.sidecar import MS, RingWriter


def test_a_record_of_numpy_is_laid_out_as_the_agent_writes_it() -> None:
    assert STEP.itemsize == ring_layout.RECORD_BYTES
    writer = RingWriter(8)
    writer.step(
        5 * MS, flags=ring_layout.SKIPPED, arm=3, own_ns=700, data_wait_ns=11, samples=32, reserved_bytes=-1
    )
    (record,) = RingReader(writer.fd).read_new()
    assert record["end_ns"] - record["start_ns"] == 5 * MS
    assert (record["own_ns"], record["arm"], record["seq"]) == (700, 3, 0)
    assert record["flags"] == ring_layout.SKIPPED | ring_layout.PHASES
    assert (record["data_wait_ns"], record["samples"], record["optimizer_ns"]) == (11, 32, -1)


def test_a_step_is_read_once_its_time_on_the_device_is_known_and_those_after_it_wait() -> None:
    writer = RingWriter(8)
    reader = RingReader(writer.fd)
    writer.step(MS, device_ns=7 * MS)
    writer.step(MS, device_ns=ring_layout.AWAITED)
    writer.step(MS, device_ns=ring_layout.AWAITED)
    writer.step(MS)
    assert reader.read_new()["device_ns"].tolist() == [7 * MS]
    assert len(reader.read_new()) == 0
    writer.stamp(1, 5 * MS)
    assert reader.read_new()["device_ns"].tolist() == [5 * MS]
    assert reader.steps == 2
    writer.stamp(2, ring_layout.UNSTAMPED)  # the agent gave it up
    assert reader.read_new()["device_ns"].tolist() == [0, 0]
    assert reader.lost == 0


@given(st.lists(st.integers(0, 7), max_size=30))
def test_whatever_the_rhythm_no_record_is_missed_or_seen_twice(rhythm: list[int]) -> None:
    writer = RingWriter(8)
    reader = RingReader(writer.fd)
    seen: list[int] = []
    for count in rhythm:
        for _ in range(count):
            writer.step(MS)
        seen += [int(seq) for seq in reader.read_new()["seq"]]
    assert seen == list(range(writer.seq))
    assert reader.lost == 0


@given(st.integers(8, 200), st.integers(0, 20))
def test_a_reader_that_was_overtaken_counts_what_it_lost_and_goes_on(burst: int, before: int) -> None:
    writer = RingWriter(16)
    reader = RingReader(writer.fd)
    seen: list[int] = []
    for count in (min(before, 15), burst, 3):
        for _ in range(count):
            writer.step(MS)
        seen += [int(seq) for seq in reader.read_new()["seq"]]
    assert seen == sorted(set(seen))
    assert len(seen) + reader.lost == writer.seq == reader.steps
    assert seen[-3:] == [writer.seq - 3, writer.seq - 2, writer.seq - 1]


class TornReader(RingReader):
    """Its copies are stopped halfway, after the sampled fields, while the agent goes on."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)
    looks = 0

    def read_new(self) -> Records:
        self.looks = 0
        return super().read_new()

    def _look(self, begin: int, end: int) -> Records:
        self.looks += 1
        found = super()._look(begin, end).copy()
        if self.looks != 3:  # after the slot before it, and the numbers of a run: its copy
            return found
        self.meanwhile()
        later = super()._look(begin, end)
        for name in ("start_ns", "end_ns", "own_ns", "arm", "flags", "seq"):
            found[name] = later[name]
        return found


def test_a_record_that_is_written_while_another_is_copied_comes_after_it() -> None:
    writer = RingWriter(16)
    reader = TornReader(writer.fd)
    writer.step(MS, samples=32)
    reader.meanwhile = lambda: writer.step(MS, samples=32)
    records = reader.read_new()
    assert records["seq"].tolist() == [0, 1]
    assert records["samples"].tolist() == [32, 32]


def test_a_record_that_is_overwritten_while_it_is_copied_is_lost() -> None:
    writer = RingWriter(16)
    reader = TornReader(writer.fd)
    for _ in range(4):
        writer.step(MS, samples=32)
    reader.meanwhile = lambda: [writer.step(MS, samples=64) for _ in range(13)]
    assert len(reader.read_new()) == 0
    reader.meanwhile = lambda: None
    records = reader.read_new()
    assert records["seq"].tolist() == list(range(4, 17))
    assert set(records["samples"].tolist()) == {64}
    assert reader.lost == 4


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "only 0 bytes"),
        (b"x" * 8192, "another layout"),
        (
            ring_layout.HEADER.pack(ring_layout.MAGIC, 99, ring_layout.RECORD_BYTES, 8, 1).ljust(
                ring_layout.size_bytes(8), b"\0"
            ),
            "another layout",
        ),
        (ring_layout.header(1, capacity=9000).ljust(8192, b"\0"), "another layout"),
        (ring_layout.header(1, capacity=0).ljust(8192, b"\0"), "another layout"),
    ],
)
def test_anything_else_than_a_ring_is_refused(content: bytes, reason: str) -> None:
    fd = os.memfd_create("ring")
    os.pwrite(fd, content, 0)
    with pytest.raises(NoRing, match=reason):
        RingReader(fd)
    os.close(fd)


def test_representative_steps_may_be_sampled_and_nothing_else() -> None:
    writer = RingWriter(32)
    for flag in (
        0,
        ring_layout.PHASES,
        ring_layout.TRACED,
        ring_layout.SKIPPED,
        ring_layout.EVALUATION,
        ring_layout.SWITCHED,
        ring_layout.SETTLING,
    ):
        writer.step(MS, flags=flag)
    kept = representative(RingReader(writer.fd).read_new())
    assert [int(flag) for flag in kept["flags"]] == [0, ring_layout.PHASES]
    assert isinstance(kept, np.ndarray)
