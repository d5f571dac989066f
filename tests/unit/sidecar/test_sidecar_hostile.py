"""A job may write what it likes into its ring and its messages: no session grows or waits for ever."""

from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from autobrrr.injected.wire import ring_layout
from autobrrr.records import ProfilerWindow
from autobrrr.records.wire_answers import SessionEnding
from autobrrr.sidecar.session import step_history, window_reader
from autobrrr.sidecar.session.ring_reader import RECORD, Records, RingReader
from autobrrr.sidecar.session.session_states import AWAITS_TURN, State
from autobrrr.sidecar.session.step_history import BUCKETS, MOST_IN_BUCKET, Buckets
from autobrrr.sidecar.session.window_reader import read_window
from autobrrr.sidecar.sockets.agent_link import Heard
from support.sessions.session import Stage
from support.sessions.sidecar import MS, RingWriter
from support.trace import Scene

TOLD = ProfilerWindow(status="ok", plain_step_ns=[4 * MS] * 4, profiled_step_ns=[5 * MS] * 4, stall_ns=MS)


def records(ends_ns: object) -> Records:
    found = np.zeros(len(ends_ns), dtype=RECORD)  # type: ignore[arg-type]
    found["end_ns"] = ends_ns
    found["start_ns"] = found["end_ns"] - MS
    return found


def test_a_clock_that_stands_still_fills_no_history() -> None:
    buckets = Buckets()
    still = records(np.full(1 << 16, 7 * MS))
    for _ in range(6):
        buckets.add(still)
    assert sum(map(len, buckets._open)) <= MOST_IN_BUCKET


def test_a_clock_that_leaps_costs_no_more_than_the_history_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    monkeypatch.setattr(Buckets, "_close", lambda self: closed.append(1))
    Buckets().add(records(np.arange(1, 20_000) * step_history.BUCKET_NS))
    assert len(closed) < BUCKETS


def test_a_step_of_a_century_does_not_make_the_detach_wait_as_long(tmp_path: Path) -> None:
    stage = Stage(tmp_path).enter()
    stage.writer.step(1 << 61)
    stage.run()
    endings: list[SessionEnding] = []
    stage.session.detach(False, endings.append)
    assert stage.run(seconds=200) is State.DETACHING
    assert stage.run(seconds=41) is State.ENDED
    assert endings[0].left == ("the agent",)


def test_a_ring_that_takes_its_numbers_back_does_not_lead_the_reader_back() -> None:
    writer = RingWriter(16)
    reader = RingReader(writer.fd)
    for _ in range(40):
        writer.step(MS)
    reader.read_new()
    seen = reader.steps
    (record,) = np.frombuffer(os.pread(writer.fd, RECORD.itemsize, ring_layout.HEADER_BYTES), RECORD).copy()
    record["seq"] = seen + 1
    os.pwrite(
        writer.fd,
        record.tobytes(),
        ring_layout.offset_bytes(seen, 16),
    )
    reader._newest = lambda: 0  # type: ignore[method-assign] # every record was taken back meanwhile
    assert len(reader.read_new()) == 0
    assert reader.steps >= seen


def test_a_window_that_unpacks_to_more_than_a_window_has_is_not_read_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_reader, "MOST_BYTES", 1 << 20)
    scene = Scene()
    for at in range(0, 40_000 * MS, MS):
        scene.operator(at, MS, "aten::mm")
    packed = tmp_path / "bomb.json.gz"
    packed.write_bytes(gzip.compress(scene.text()))
    assert packed.stat().st_size < 1 << 20
    found = read_window(TOLD, os.open(packed, os.O_RDONLY))
    assert found.operators is not None
    assert 0 < found.operators * 5 < 20_000


def test_a_job_that_moves_the_place_of_a_shared_descriptor_moves_no_reader(tmp_path: Path) -> None:
    scene = Scene()
    for at in range(0, 10_000 * MS, MS):
        scene.operator(at, MS, "aten::mm")
    fd = os.open(scene.write(tmp_path), os.O_RDONLY)
    its, over = os.dup(fd), threading.Event()

    def move() -> None:
        while not over.is_set():
            os.lseek(its, 0, os.SEEK_SET)

    thread = threading.Thread(target=move)
    thread.start()
    try:
        found = read_window(TOLD, fd)
    finally:
        over.set()
        thread.join()
        os.close(its)
    assert found.operators == 10_000 / 5


def test_an_agent_can_t_say_that_it_is_another_rank_s_turn_for_which_clients_wait(tmp_path: Path) -> None:
    stage = Stage(tmp_path).enter().traced()
    assert stage.run(24) is State.PROBING
    for said in ("probing 2B", AWAITS_TURN):
        stage.session.on_event(Heard({"event": "progress", "activity": said}))
    assert stage.session.activity == "probing 2B"
