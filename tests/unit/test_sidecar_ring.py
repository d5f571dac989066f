"""The ring reader gives every record once, in order, and says what it has lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autobrrr.agent import ring
from autobrrr.errors import AutobrrrError
from autobrrr.sidecar.ring_reader import RECORD, RingReader, representative
from autobrrr.tuner.bench import STEP
from support.sidecar import MS, RingWriter


def test_a_record_of_numpy_is_laid_out_as_the_agent_writes_it() -> None:
    assert RECORD.itemsize == ring.RECORD_BYTES
    assert RECORD == STEP
    writer = RingWriter(8)
    writer.step(5 * MS, flags=ring.SKIPPED, arm=3, own_ns=700, data_wait_ns=11, samples=32, reserved_bytes=-1)
    (record,) = RingReader(writer.fd).read_new()
    assert record["end_ns"] - record["start_ns"] == 5 * MS
    assert (record["own_ns"], record["arm"], record["seq"]) == (700, 3, 0)
    assert record["flags"] == ring.SKIPPED | ring.PHASES
    assert (record["data_wait_ns"], record["samples"], record["optimizer_ns"]) == (11, 32, -1)


def test_an_empty_ring_has_nothing_new() -> None:
    reader = RingReader(RingWriter(8).fd)
    assert len(reader.read_new()) == 0
    assert reader.steps == 0


@settings(max_examples=60)
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


def test_what_may_be_half_overwritten_is_left_out() -> None:
    writer = RingWriter(16)
    reader = RingReader(writer.fd)
    for _ in range(16):
        writer.step(MS)
    records = reader.read_new()
    # With 15 as the newest, the agent may be writing number 16 over number 0 right now.
    assert [int(seq) for seq in records["seq"]] == list(range(1, 16))
    assert reader.lost == 1


class Torn(np.ndarray):  # type: ignore[type-arg]
    """Records whose copy is stopped halfway, after the sampled fields, while the agent goes on."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def copy(self, order: object = "C") -> Any:
        found = np.array(self)
        if self.dtype.names:
            Torn.meanwhile()
            for name in ("start_ns", "end_ns", "own_ns", "arm", "flags", "seq"):
                found[name] = self[name]
        return found


def torn(reader: RingReader, meanwhile: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Torn, "meanwhile", staticmethod(meanwhile))
    reader._records = reader._records.view(Torn)


def test_a_record_that_is_written_while_it_is_copied_waits_for_the_next_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = RingWriter(16)
    reader = RingReader(writer.fd)
    writer.step(MS, samples=32)
    torn(reader, lambda: writer.step(MS, samples=32), monkeypatch)
    seen = [reader.read_new() for _ in range(3)]
    assert [int(seq) for records in seen for seq in records["seq"]] == [0, 1, 2]
    assert {int(samples) for records in seen for samples in records["samples"]} == {32}


def test_a_record_that_is_overwritten_while_it_is_copied_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = RingWriter(16)
    reader = RingReader(writer.fd)
    for _ in range(4):
        writer.step(MS, samples=32)
    torn(reader, lambda: [writer.step(MS, samples=64) for _ in range(13)], monkeypatch)
    records = reader.read_new()
    assert [int(seq) for seq in records["seq"]] == [2, 3]
    assert {int(samples) for samples in records["samples"]} == {32}
    assert reader.lost == 2


def test_records_are_copies_that_stay_when_the_ring_is_closed() -> None:
    writer = RingWriter(8)
    reader = RingReader(writer.fd)
    writer.step(MS)
    records = reader.read_new()
    for _ in range(8):
        writer.step(9 * MS)
    reader.close()
    assert int(records["end_ns"][0] - records["start_ns"][0]) == MS


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "only 0 bytes"),
        (b"x" * 8192, "another layout"),
        (
            ring.HEADER.pack(ring.MAGIC, 99, ring.RECORD_BYTES, 8, 1).ljust(ring.size_bytes(8), b"\0"),
            "another layout",
        ),
        (ring.header(1, capacity=9000).ljust(8192, b"\0"), "another layout"),
        (ring.header(1, capacity=0).ljust(8192, b"\0"), "another layout"),
    ],
)
def test_anything_else_than_a_ring_is_refused(content: bytes, reason: str) -> None:
    fd = os.memfd_create("no-ring")
    os.write(fd, content)
    with pytest.raises(AutobrrrError, match=reason):
        RingReader(fd)
    os.close(fd)


def test_representative_steps_may_be_sampled_and_nothing_else() -> None:
    writer = RingWriter(32)
    for flag in (
        0,
        ring.PHASES,
        ring.TRACED,
        ring.AFTER_SHADOW,
        ring.SKIPPED,
        ring.EVALUATION,
        ring.LEVER,
        ring.SETTLING,
    ):
        writer.step(MS, flags=flag)
    kept = representative(RingReader(writer.fd).read_new())
    assert [int(flag) for flag in kept["flags"]] == [0, ring.PHASES]
    assert isinstance(kept, np.ndarray)
