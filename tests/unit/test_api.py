"""`import autobrrr`: four names, nothing imported before one is used; a session that cleans up."""

from __future__ import annotations

import html
import inspect
import subprocess
import sys
from types import SimpleNamespace
from typing import cast

import pytest

import autobrrr
import autobrrr.attach.triage
from autobrrr import api
from autobrrr.client.each_rank import RanksOutcome
from autobrrr.client.session_client import Client
from autobrrr.errors import TargetGone, UsageError
from autobrrr.records import Diagnosis
from autobrrr.records.wire_answers import SessionEnding
from autobrrr.sidecar.process.session_options import SessionOptions
from support.screens import tui


class FakeClient:
    """A session as far as the API asks it."""

    def __init__(self, *, started: bool = True) -> None:
        self.started, self.ending = started, None
        self.facts = SimpleNamespace(
            pid=7, outside=False, readonly=False, probing="on", metrics=None, log_to=None
        )
        self.done: list[str] = []

    def snapshot(self) -> object:
        if "detach" in self.done:
            raise TargetGone("the session is over")
        return tui.snapshot()

    def detach(self, keep: bool = False) -> SessionEnding:
        self.done.append("keep" if keep else "detach")
        return SessionEnding(kind="detached", why="", left=[])

    def close(self) -> None:
        self.done.append("close")


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    client = FakeClient()

    def join_or_start(pid: int, options: SessionOptions, *, owned: bool, on_wait: object) -> Client:
        client.done += ["own"] if owned and client.started else []
        return cast(Client, client)

    monkeypatch.setattr(api, "join_or_start", join_or_start)
    return client


def test_every_name_is_there_and_says_what_it_does() -> None:
    assert set(autobrrr.__all__) - {"__version__"} == {"Session", "attach", "diagnose", "tune"}
    for name in set(autobrrr.__all__) - {"__version__"}:
        found = getattr(api, name)
        assert inspect.getdoc(found), name
        assert name in dir(autobrrr)
    with pytest.raises(AttributeError, match="atach"):
        _ = autobrrr.atach  # type: ignore[attr-defined]


def test_importing_the_package_imports_nothing_of_it() -> None:
    code = "import sys, autobrrr; print([name for name in sys.modules if name.startswith('autobrrr.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_attach_is_a_room_and_a_function(joined: FakeClient) -> None:
    assert autobrrr.attach.triage.CHECKS  # type: ignore[attr-defined]
    assert isinstance(autobrrr.attach(7), autobrrr.Session)


def test_a_session_that_was_started_here_is_taken_off_at_the_end(joined: FakeClient) -> None:
    with api.attach(7) as session:
        assert session.started
        assert session.snapshot().regime == "overhead"
        assert "regime overhead (high)" in repr(session)
    assert joined.done == ["own", "detach", "close"]


def test_a_session_that_was_there_already_stays(joined: FakeClient) -> None:
    joined.started = False
    said: list[str] = []
    with api.attach(7, say=said.append):
        pass
    assert joined.done == ["close"]
    assert said == ["joined the existing session of process 7"]


def test_a_session_shows_itself_as_a_page_and_still_does_when_it_is_over(joined: FakeClient) -> None:
    session = api.attach(7)
    shown = session._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert shown.count("<") == 2  # the page itself is escaped
    assert "overhead" in html.unescape(shown)
    session.detach()
    assert session._repr_html_() == shown


def test_names_that_do_not_exist_are_refused_before_anything_is_tried(joined: FakeClient) -> None:
    with pytest.raises(UsageError, match=r"optimizer\.fuse"):
        api.attach(7).tune(only=["optimizer.fuse"])
    assert joined.done == ["own"]


def test_a_launcher_is_diagnosed_by_all_of_its_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = {pid: tui.snapshot(pid=pid, job=tui.job(rank=pid - 8, world_size=3)) for pid in (8, 9)}
    outcome = RanksOutcome(done=ranks, failed={10: TargetGone("process 10 ended")})
    asked: list[list[int]] = []

    def diagnosed_ranks(pids: list[int], *rest: object) -> RanksOutcome[Diagnosis]:
        asked.append(pids)
        return outcome

    monkeypatch.setattr(api, "launched_by", lambda pid: [8, 9, 10])
    monkeypatch.setattr(api, "diagnosed_ranks", diagnosed_ranks)
    found = autobrrr.diagnose(7)
    assert asked == [[8, 9, 10]]
    assert [(line.pid, line.why) for line in found.ranks or []] == [
        (8, None),
        (9, None),
        (10, "process 10 ended"),
    ]
    outcome.done.clear()
    with pytest.raises(TargetGone, match="process 10"):
        autobrrr.diagnose(7)
