"""Session logs and recordings become the views they were; whatever is broken in them is left out."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autobrrr.errors import UsageError
from autobrrr.records import Diagnosis, Shares, Verdict
from autobrrr_tui.sources.replay_source import RECORDING, ReplaySource, ViewReader, read
from autobrrr_tui.view_state import View
from support.screens import tui

VERDICT = Verdict(regime="overhead", confidence="high", reason="Python", shares=Shares(), evidence=[])


def line(at_s: float, kind: str, body: object) -> bytes:
    return msgspec.json.encode({"at": at_s, "kind": kind, "body": body}) + b"\n"


def session() -> list[bytes]:
    """As a sidecar writes it."""
    return [
        line(10.0, "attached", {"attach": {}}),
        line(10.5, "snapshot", tui.measuring().snapshot),
        line(12.0, "verdict", VERDICT),
        line(13.0, "snapshot", tui.snapshot()),
        line(20.0, "trial", tui.trial()),
        line(30.0, "tuned", tui.tuned()),
        line(31.0, "note", {"text": "gc.freeze was lost: it was taken off"}),
        line(40.0, "history", tui.history()),
        line(41.0, "ended", {"kind": "job ended", "why": "process 8091 ended", "left": []}),
        line(41.0, "snapshot", tui.snapshot(active=["optimizer.fused"], state="ended", final=True)),
    ]


def seen(source: ReplaySource) -> list[View]:
    """Play it to its end, in this thread."""
    views: list[View] = []
    source._play(views.append)
    return views


def test_a_log_makes_the_view_that_the_session_ended_with() -> None:
    reader = ViewReader()
    reader.feed(session())
    view = reader.view
    assert (view.regime, view.pid, reader.ended) == ("overhead", 8091, "process 8091 ended")
    assert view.tuned == tui.tuned()
    assert [trial.outcome for trial in view.trials] == ["kept", "undone"]
    assert view.details.history == tui.history()
    said = [each.text for each in view.log]
    assert "No verdict: Python" in said
    assert "gc.freeze was lost: it was taken off" in said


@given(
    st.lists(st.one_of(st.binary(max_size=40), st.sampled_from(session())), max_size=12), st.integers(0, 400)
)
def test_no_file_at_all_makes_it_raise(lines: list[bytes], cut: int) -> None:
    reader = ViewReader()
    reader.feed([each[: len(each) - cut % (len(each) + 1)] for each in lines] + lines)
    assert isinstance(reader.view, View)


def test_a_file_that_holds_no_session_says_so(tmp_path: Path) -> None:
    for name, content in (("a.jsonl", b"{}\n"), ("b.jsonl.gz", b"no gzip"), ("c.jsonl", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UsageError):
            read(tmp_path / name)
    with pytest.raises(UsageError, match="can't be read"):
        read(tmp_path / "gone.jsonl")


def test_a_played_session_waits_as_long_as_it_took_but_not_for_gaps(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"".join(session()))
    waits: list[float] = []
    views = seen(ReplaySource(read(tmp_path / "a.jsonl"), title="a", speed=2.0, wait=waits.append))
    assert waits == [0.25, 0.75, 0.5, 2.5, 2.5, 0.5, 2.5, 0.5]
    assert len(views) == len(waits) + 1
    assert views[-1].tuned is not None


def test_the_recording_that_ships_is_a_whole_session_of_a_real_job() -> None:
    entries = read(RECORDING)
    view = seen(ReplaySource(entries, title="demo"))[-1]
    assert view.snapshot.job is not None
    assert view.judged.limit == "host"
    assert "optimizer.fused" in view.tuned.kept
    assert view.tuned.interval[0] > 1, "proven by a confirmation run"
    assert view.details.recipe is not None
    assert len([found for _, _, found in entries if isinstance(found, Diagnosis)]) > 20
    assert len(RECORDING.read_bytes()) < 200_000


def test_the_recording_names_no_place_of_the_machine_that_made_it() -> None:
    text = gzip.decompress(RECORDING.read_bytes()).decode()
    assert not re.search(r"/root|/home|/[\w-]+/train\.py", text)
