"""`import autobrrr`: four names, nothing imported before one is used; a session that cleans up."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

import autobrrr
import autobrrr.attach.triage
from autobrrr import api
from autobrrr.cli import agent_tools
from autobrrr.client import each_rank, session_client
from autobrrr.client.each_rank import RanksOutcome
from autobrrr.client.session_client import Client
from autobrrr.errors import AutobrrrError, CannotAttach, TargetGone
from autobrrr.records import Diagnosis, Tuning
from autobrrr.records.session_requests import TuneRequest
from autobrrr.records.wire_answers import SessionEnding
from support.judged.diagnosis import measured
from support.screens import tui
from support.sessions.client import PlayedClient

TUNED = tui.tuned()


class FakeClient(PlayedClient):
    """A session as far as the API asks it."""

    def __init__(self, pid: int = 7, *, started: bool = True) -> None:
        self.started, self.ending = started, None
        self.facts = SimpleNamespace(pid=pid, outside=False, readonly=False, probing="on", metrics=None)
        self.apart: str | None = None  # why it can't switch with the other ranks
        self.left: tuple[str, ...] = ()
        self.done: list[str] = []

    def snapshot(self) -> Diagnosis:
        if "detach" in self.done:
            raise TargetGone("the session is over")
        pid = self.facts.pid
        job = tui.job(rank=pid - 8, world_size=2) if pid != 7 else tui.job()
        return tui.snapshot(pid=pid, job=job, anatomy=measured().anatomy)

    def snapshots(self, *, every_s: float) -> Iterator[Diagnosis]:
        yield self.snapshot()

    def unsubscribe(self) -> None:
        self.done.append("unsubscribe")

    def hold(self, held: bool) -> None:
        if held:
            self.done.append("hold")

    def compare(self, for_ns: int) -> None:
        raise AutobrrrError("no comparison of ranks")

    def together(self, log: str = "") -> str:
        self.done.append("together")
        if self.apart is not None:
            raise AutobrrrError(f"remedies can't be applied to all ranks: {self.apart}")
        return "log"

    def own(self, owned: bool = True) -> None:
        self.done.append("own" if owned else "stay")

    def tune(self, asked: TuneRequest, **told: object) -> Tuning:
        self.done.append("tune")
        return TUNED

    def detach(self, keep: bool = False) -> SessionEnding:
        if "detach" in self.done:
            raise AutobrrrError("its sidecar is gone")
        self.done.append("keep" if keep else "detach")
        return SessionEnding(kind="detached", why="", left=self.left)

    def leave(self) -> SessionEnding | None:
        self.done.append("leave")
        return None

    def close(self) -> None:
        self.done.append("close")


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    client = FakeClient()

    def met(target: int, *more: object, owned: bool) -> Client:
        client.done += ["own"] if owned and client.started else []
        return cast(Client, client)

    monkeypatch.setattr(api, "launched_by", lambda pid: [])
    monkeypatch.setattr(session_client, "find_target", lambda pid: pid)
    monkeypatch.setattr(session_client, "_joined", met)
    return client


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> dict[int, FakeClient]:
    """The ranks of process 6; one that is taken out can't be attached to."""
    clients = {pid: FakeClient(pid) for pid in (8, 9)}

    def met(pid: int, *more: object, owned: bool) -> Client:
        if pid not in clients:
            raise CannotAttach(f"process {pid} is stopped")
        return cast(Client, clients[pid])

    monkeypatch.setattr(api, "launched_by", lambda pid: [8, 9])
    monkeypatch.setattr(session_client, "find_target", lambda pid: pid)
    monkeypatch.setattr(session_client, "_joined", met)
    monkeypatch.setattr(each_rank, "MEET_S", 0.3)
    return clients


def test_an_agent_ends_a_session_that_was_started_as_usual(joined: FakeClient) -> None:
    joined.started = False
    assert '"stays": []' in agent_tools.detach(7)
    assert "detach" in joined.done


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


def test_a_session_that_was_started_here_is_taken_off_at_the_end(joined: FakeClient) -> None:
    with api.attach(7) as session:
        assert session.started
        assert session.snapshot().regime == "overhead"
        assert "regime overhead (high)" in repr(session)
    assert joined.done == ["own", "leave", "close"]


def test_a_session_that_was_there_already_stays(joined: FakeClient) -> None:
    joined.started = False
    said: list[str] = []
    with api.attach(7, say=said.append):
        pass
    assert joined.done == ["own", "leave", "close"]  # it ends with whoever leaves it last
    assert said == ["joined the existing session of process 7"]


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


def test_the_session_of_a_launcher_is_that_of_all_its_ranks(launched: dict[int, FakeClient]) -> None:
    launched[9].left = ("the agent",)
    with api.attach(6) as session:
        assert session.started
        for found in (session.snapshot(), session.diagnose(for_s=1)):
            assert [line.pid for line in found.ranks or []] == [8, 9]
        assert session.detach().left == ("the agent",)
    for client in launched.values():
        assert client.done == ["hold", "unsubscribe", "detach", "close"]


def test_a_rank_that_can_not_be_attached_to_is_said_and_nothing_is_tuned(
    launched: dict[int, FakeClient],
) -> None:
    del launched[9]
    session = api.attach(6)
    missing = [(line.pid, line.why) for line in session.snapshot().ranks or []]
    assert missing == [(8, None), (9, "process 9 is stopped")]
    with pytest.raises(AutobrrrError, match="in all ranks or in none: process 9 is stopped"):
        session.tune()
    assert "tune" not in launched[8].done
    del launched[8]
    with pytest.raises(CannotAttach, match="process 8"):
        api.attach(6)


def test_the_ranks_of_a_launcher_are_tuned_by_one_of_them_and_all_sessions_stay(
    launched: dict[int, FakeClient],
) -> None:
    assert autobrrr.tune(6) == TUNED
    assert launched[8].done == ["together", "hold", "unsubscribe", "hold", "stay", "tune", "close"]
    assert launched[9].done == ["together", "hold", "unsubscribe", "hold", "stay", "close"]


def test_ranks_that_can_not_switch_together_are_not_tuned(launched: dict[int, FakeClient]) -> None:
    launched[9].apart = "a rank is on another machine"
    with pytest.raises(AutobrrrError, match="all ranks: a rank is on another machine"):
        autobrrr.tune(6)
    assert all("tune" not in client.done and client.done[-1] == "close" for client in launched.values())
