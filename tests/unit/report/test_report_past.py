"""`report SESSION`: found by a path, a name, a pid or `last`; printed as text; opened only on a terminal."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from autobrrr.cli import main, terminal_screen
from autobrrr.errors import UsageError
from autobrrr.report.html.page_template import page_html
from autobrrr.report.page_text import page_text
from autobrrr.report.pages.session_page import session_page
from autobrrr.report.past_session import past_session
from support.pages import read_page
from support.screens import tui


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three sessions in the state folder, two of them of one job."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "autobrrr" / "sessions"
    folder.mkdir(parents=True)
    for name in ("20260101-100000-8091", "20260102-100000-8091", "20260103-100000-42"):
        (folder / f"{name}.jsonl").write_bytes(
            _line("snapshot", tui.snapshot())
            + _line("tuned", tui.tuned())
            + _line("ended", {"kind": "job ended", "why": f"end of {name}"})
        )
    return folder


def _line(kind: str, body: object) -> bytes:
    return msgspec.json.encode({"at": 1.0, "kind": kind, "body": body}) + b"\n"


@pytest.mark.parametrize(
    ("word", "file"),
    [
        ("last", "20260103-100000-42"),
        ("8091", "20260102-100000-8091"),
        ("42", "20260103-100000-42"),
        ("20260101-100000-8091", "20260101-100000-8091"),
        ("20260101-100000-8091.jsonl", "20260101-100000-8091"),
    ],
)
def test_a_session_is_found_by_whatever_names_it(logs: Path, word: str, file: str) -> None:
    assert terminal_screen.session_file(word) == logs / f"{file}.jsonl"
    assert terminal_screen.session_file(str(logs / f"{file}.jsonl")).stem == file


@pytest.mark.parametrize("word", ["8", "yesterday", "/no/such/file.jsonl", "x" * 300, "nothing\0"])
def test_a_session_that_is_not_there_names_the_latest(logs: Path, word: str) -> None:
    with pytest.raises(UsageError) as caught:
        terminal_screen.session_file(word)
    assert "20260103-100000-42" in caught.value.hint


def test_without_a_name_the_sessions_are_listed_the_newest_first(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (logs / "20260104-100000-7.jsonl").write_text("torn")
    assert main(["report"]) == 0
    heads, *lines = (told := capsys.readouterr()).out.splitlines()
    assert heads.split() == ["SESSION", "SCRIPT", "REGIME", "SPEED-UP", "ENDED"]
    assert [line.split()[0] for line in lines[:4]] == [
        "20260104-100000-7",
        "20260103-100000-42",
        "20260102-100000-8091",
        "20260101-100000-8091",
    ]
    assert lines[0].endswith("can't be read")
    assert "overhead (high)" in lines[1]
    assert lines[1].endswith("end of 20260103-100000-42")
    assert told.err.startswith("next: autobrrr report SESSION")


def test_without_any_session_the_recorded_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main(["report"]) == 0
    assert "report demo" in capsys.readouterr().out
    assert main(["report", "--tui"]) == 2


def test_the_text_says_what_was_found_tried_and_how_it_ended(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "8091", "-v"]) == 0
    said, told = capsys.readouterr()
    assert told == "next: autobrrr report 8091 --html session.html   (or --tui: on the screen)\n"
    assert "Limited by host: 68 % Python and dispatch (high confidence)" in said
    assert "speed-up 1.56x" in said
    assert "session of 42.0 s, 9870 steps · end of 20260102-100000-8091" in said
    assert said.rstrip().endswith("20260102-100000-8091.jsonl")
    assert main(["report", "8091"]) == 0
    short = capsys.readouterr().out
    assert "speed-up 1.56x" in short
    assert re.search(r"What is slow\? +Limited by host: 68 % Python and dispatch", short)
    assert ("Own cost" in said, "Own cost" in short, len(short.splitlines()) < 30) == (True, False, True)


def test_a_session_that_was_cut_is_told_as_far_as_it_went(tmp_path: Path) -> None:
    file = tmp_path / "cut.jsonl"
    torn = b'{"at": 1, "kind": "tu'
    file.write_bytes(_line("snapshot", tui.snapshot()) + _line("trial", tui.trial()) + torn)
    said = page_text(session_page(past_session(file)))
    assert "outcome kept\n    why: faster" in said
    assert "the log stops before the session's end" in said


@pytest.mark.parametrize(
    ("origin", "host", "own"),
    [
        ("http://localhost:8000", "localhost:8000", True),
        ("http://evil.example", "localhost:8000", False),
        ("http://localhost:8000", "evil.example:8000", False),
        ("http://localhost:9000", "localhost:8000", False),
        (None, "localhost:8000", False),
        ("null", "localhost:8000", False),
    ],
)
def test_only_pages_of_this_server_may_press_keys(origin: str | None, host: str, own: bool) -> None:
    serving = pytest.importorskip("autobrrr_tui.browser_serving")
    assert serving.is_own_page(origin, host, 8000) is own


def test_a_served_screen_is_for_who_started_it_and_for_root(monkeypatch: pytest.MonkeyPatch) -> None:
    serving = pytest.importorskip("autobrrr_tui.browser_serving")
    monkeypatch.setattr(serving.os, "geteuid", lambda: 1000)
    assert serving.allowed_users({"SUDO_UID": "1001"}) == {0, 1000}
    monkeypatch.setattr(serving.os, "geteuid", lambda: 0)
    assert serving.allowed_users({"SUDO_UID": "1001"}) == {0, 1001}
    assert serving.allowed_users({}) == {0}


def test_a_page_shows_each_trial_with_its_interval_and_loads_nothing(logs: Path, tmp_path: Path) -> None:
    file = tmp_path / "session.html"
    assert main(["report", "last", "--html", str(file)]) == 0
    text = file.read_text(encoding="utf-8")
    found = read_page(text)
    measured = [
        each for each in tui.tuned().trials if each.achieved is not None and each.interval is not None
    ]
    assert measured
    for trial in tui.tuned().trials:
        assert trial.remedy in found.text
        assert trial.why in found.text
    assert "Limited by host: 68 % Python and dispatch (high confidence)" in found.text
    drawn = text[text.index("Every remedy that was tried") :]
    assert drawn.count('class="span') == len(measured) + 1  # and all together
    assert drawn.count('class="told"') == sum(each.predicted is not None for each in tui.tuned().trials)


def test_what_of_a_log_can_t_be_read_is_counted_and_said(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(
        _line("snapshot", tui.snapshot())
        + b'{"at": 1.0, "kind": "trial", "body": {"rem\n'
        + _line("tuned", tui.tuned())
        + _line("trial", {"schema": 9})
        + b"17\n"
        + _line("ended", {"kind": "job ended", "why": "the job ended"})[:-5]
    )
    found = past_session(path)
    assert found.data.tuned is not None
    assert found.data.unread.startswith("4 lines of the log can't be read, the first is line 2: ")
    assert found.data.unread in page_text(session_page(found), None)
    assert "4 lines" in page_html(session_page(found))
