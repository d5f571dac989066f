"""The session log keeps what is whole, and never stops a session."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

from autobrrr.records import Attach
from autobrrr.report.log_lines import LogEntry, open_log
from autobrrr.sidecar.session.session_log import SessionLog, log_path
from support.sessions.session import Stage, read_log


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    log = SessionLog(log_path(7, tmp_path, 0.0))
    log.write("attached", Attach(method="ptrace", latency_ns=5, pause_ns=None))
    log.write("note", {"text": "two\nlines"})
    assert list(read_log(log.path)) == [
        ("attached", {"method": "ptrace", "latency_ns": 5, "pause_ns": None}),
        ("note", {"text": "two\nlines"}),
    ]
    assert log.path.name.endswith("-7.jsonl")
    assert log.path.stat().st_mode & 0o777 == 0o600


def test_lines_that_are_no_entries_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(
        b'\xff\xfe\n[]\n{"at":1,"kind":1,"body":{}}\n{"at":1,"kind":"x","body":{}}\n{"at":1,"kind":"x"}\n\n'
        b'{"kind":"x","body":{}}\n{"at":1e300,"kind":"x","body":{}}\n'
    )
    lines = open_log(path)
    assert list(lines) == [LogEntry(1.0, "x", None)]
    assert str(lines.said).startswith("6 lines of the log can't be read, the first is line 1: ")


def test_a_full_disk_loses_lines_and_the_next_one_stands_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    log = SessionLog(path)
    log.write("note", {"n": 1})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, hard))
    try:
        log.write("note", {"n": 2})  # ten bytes of it fit
        log.write("note", {"n": 3})  # nothing of it does
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    log.write("note", {"n": 4})
    assert log.lost_lines == 2
    assert [body["n"] for _, body in read_log(path)] == [1, 4]


def test_a_switch_stands_in_the_log_with_all_that_is_on_after_it(stage: Stage) -> None:
    stage.enter()
    for token, remedy in ((1, "gc.freeze"), (2, "optimizer.fused")):
        stage.session.active.apply(remedy, {}, lambda done: None)
        stage.agent.answer("apply", token=token, arm=token, seq=token)
    stage.session.active.undo(1, lambda done: None)
    stage.agent.answer("undo", arm=3, seq=9)
    assert [each["active"] for each in stage.journal("note") if each.get("about") == "switch"] == [
        ["gc.freeze"],
        ["gc.freeze", "optimizer.fused"],
        ["optimizer.fused"],
    ]
