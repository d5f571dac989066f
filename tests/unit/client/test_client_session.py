"""A client turns frames into records, and every way a session can fail into one clear error."""

from __future__ import annotations

import socket

import msgspec
import pytest

from autobrrr.client import session_client
from autobrrr.client.session_client import Client
from autobrrr.errors import AutobrrrError, TargetGone
from autobrrr.records import Advice, Diagnosis, Trial, TuneProgress, from_registry
from autobrrr.records.session_requests import ApplyRemedies, Measure, Ping, Request, TakeSnapshot, TuneRequest
from support.judged.verdicts import OVERHEAD
from support.sessions.client import Session
from support.sessions.service import RESULT, TRIAL


@pytest.fixture
def session() -> Session:
    return Session()


def test_it_knows_whose_session_it_joined(session: Session) -> None:
    client = Client(session.theirs)
    assert (client.facts.pid, client.facts.probing, client.started) == (42, "on", False)
    assert session.asked()["do"] == "ping"


def test_snapshots_come_until_the_session_ends(session: Session) -> None:
    session.answer().snapshot().tell("activity", {"text": "tracing"}).snapshot()
    session.end("job ended", "process 42 ended")
    said: list[str] = []
    client = Client(session.theirs)
    found = list(client.snapshots(on_activity=said.append))
    assert [type(each) for each in found] == [Diagnosis] * 3
    assert said == ["tracing"]
    assert (client.ending.kind, client.ending.decided) == ("job ended", True)
    assert list(client.snapshots()) == []


def test_what_came_while_waiting_for_an_answer_is_not_lost(session: Session) -> None:
    session.answer()
    session.snapshot().answer(OVERHEAD)
    session.end("detached", "detached")
    client = Client(session.theirs)
    snapshots = client.snapshots()
    first = next(snapshots)
    assert client.ask(TakeSnapshot()) == first == OVERHEAD
    assert len(list(snapshots)) == 1


def test_a_session_that_says_nothing_any_more_is_asked_and_given_up(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_client, "SILENT_S", 0.05)
    monkeypatch.setattr(Request, "patience_s", 0.05)
    session.answer()
    client = Client(session.theirs)
    with pytest.raises(AutobrrrError, match="did not answer 'ping'"):
        list(client.snapshots())
    assert [session.asked()["do"] for _ in range(3)] == ["ping", "subscribe", "ping"]


def test_what_comes_while_it_no_longer_answers_is_told_first(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_client, "SILENT_S", 0.05)
    monkeypatch.setattr(Request, "patience_s", 0.05)
    asked = Client.ask

    def ask(client: Client, request: Request[object]) -> object:
        if isinstance(request, Ping):
            session.tell("tuned", RESULT)
        return asked(client, request)

    session.answer()
    client = Client(session.theirs)
    monkeypatch.setattr(Client, "ask", ask)
    assert client.tune(TuneRequest(for_s=60)) == RESULT


def test_an_error_keeps_message_hint_and_exit_code(session: Session) -> None:
    error = {"message": "no remedies", "hint": "detach", "exit_code": 2}
    session.say({"ok": False, "id": 2, "error": error})
    client = Client(session.theirs)
    with pytest.raises(AutobrrrError) as caught:
        client.ask(Measure())
    assert (caught.value.message, caught.value.hint, caught.value.exit_code) == ("no remedies", "detach", 2)


def test_a_session_that_ends_with_its_job_is_gone(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(pid: int) -> None:
        raise TargetGone(f"there is no process {pid}")

    monkeypatch.setattr("autobrrr.client.session_client.find_target", nowhere)
    client = Client(session.theirs)
    session.link.close()
    with pytest.raises(TargetGone, match=r"process [0-9]+ has ended"):
        client.ask(TakeSnapshot())


def test_a_sidecar_that_vanishes_alone_does_not_count_as_the_end_of_the_job(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autobrrr.client.session_client.find_target", lambda pid: None)
    client = Client(session.theirs)
    session.link.close()
    with pytest.raises(AutobrrrError, match="the job trains on") as caught:
        client.ask(TakeSnapshot())
    assert caught.value.exit_code == 1


def test_an_answer_of_another_version_is_refused_and_not_guessed(session: Session) -> None:
    session.answer({"pid": "many"})
    client = Client(session.theirs)
    with pytest.raises(AutobrrrError, match="can't be read"):
        client.ask(TakeSnapshot())


def test_remedies_are_applied_with_their_outcomes(session: Session) -> None:
    session.answer([{"remedy": "gc.freeze", "why": None, "token": 1}, {"remedy": "x", "why": "refused"}])
    other = Advice(remedy="x", reach="live", class_="stream", options={"n": 1})
    remedies = [from_registry("gc.freeze"), other]
    outcomes = Client(session.theirs).ask(ApplyRemedies(remedies, "rounding"))
    assert [(each.remedy, each.why) for each in outcomes] == [("gc.freeze", None), ("x", "refused")]
    session.asked()
    asked = session.asked()
    assert (asked["remedies"], asked["most_class"]) == (msgspec.to_builtins(remedies), "rounding")


def test_a_tuning_reports_as_it_goes_and_returns_its_result(session: Session) -> None:
    progress = TuneProgress(stage="trial", text="trying optimizer.fused")
    session.answer().snapshot().tell("progress", progress).tell("trial", TRIAL).tell("tuned", RESULT)
    seen: list[TuneProgress | Trial] = []
    client = Client(session.theirs)
    assert client.tune(TuneRequest(for_s=60), on_progress=seen.append, on_trial=seen.append) == RESULT
    assert seen == [progress, TRIAL]
    session.asked()
    asked = session.asked()
    assert (asked["for_s"], asked["allow"], asked["only"]) == (60, None, None)


def test_a_tuning_that_fails_says_why(session: Session) -> None:
    session.answer().tell("tune_failed", {"message": "no step ends", "hint": "", "exit_code": 1})
    client = Client(session.theirs)
    with pytest.raises(AutobrrrError, match="no step ends"):
        client.tune(TuneRequest())


def test_a_job_that_ends_under_the_tuner_is_gone(session: Session) -> None:
    session.answer().end("job ended", "process 42 ended")
    client = Client(session.theirs)
    with pytest.raises(TargetGone, match="process 42 ended"):
        client.tune(TuneRequest())


def test_detach_returns_what_was_left_when_the_session_is_over(session: Session) -> None:
    session.answer({"kind": "detached", "why": "the agent did not answer", "left": ["the agent"]})
    session.end("detached", "x")
    client = Client(session.theirs)
    session.link.shutdown(socket.SHUT_WR)
    assert client.detach(keep=True).left == ("the agent",)
    assert client.ending is not None
    session.asked()
    assert session.asked()["keep"] is True
