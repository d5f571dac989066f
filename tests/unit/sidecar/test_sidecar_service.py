"""Clients get clear answers; one that sends nonsense or does not read loses its own connection only."""

from __future__ import annotations

import threading

import msgspec
import pytest

from autobrrr.agent.remedies.registry import RefusalCode
from autobrrr.agent.wire.framing import MAX_FRAME_BYTES, encode
from autobrrr.records import Diagnosis, TuneProgress, from_registry
from autobrrr.records import Tuning as TuningResult
from autobrrr.records.session_requests import TuneRequest
from autobrrr.records.wire_answers import ActivityLine, LogTail, RemedyOutcome, SessionEnding, SessionFacts
from autobrrr.sidecar.process.session_options import State
from autobrrr.sidecar.tuning.live_bench import EVALUATION_S, LiveBench
from support.sessions.service import RESULT, Guest, Office
from support.sessions.sidecar import StepModel, anatomy, raw_frame


def test_a_ping_says_which_session_this_is(guest: Guest) -> None:
    answer = guest.ask("ping")
    assert (answer["ok"], answer["id"]) == (True, 5)
    facts = msgspec.convert(answer["answer"], SessionFacts)
    assert (facts.pid, facts.readonly) == (42, False)


def test_a_snapshot_is_a_diagnosis(guest: Guest) -> None:
    found = msgspec.convert(guest.ask("snapshot")["answer"], Diagnosis)
    assert (found.pid, found.regime, found.final) == (42, "unknown", False)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({"do": "dance"}, "bad request 'dance'"),
        ({}, "bad request None"),
        ({"do": ["ping"]}, "bad request"),
        ({"do": "subscribe", "every_ms": "often"}, "got `str` - at `$.every_ms`"),
        ({"do": "measure", "probing": "maybe"}, "'maybe' - at `$.probing`"),
        ({"do": "detach", "keep": "yes"}, "got `str` - at `$.keep`"),
        ({"do": "log", "lines": -1}, "at `$.lines`"),
        ({"do": "apply", "remedies": "all"}, "at `$.remedies`"),
        ({"do": "apply", "remedies": [{"remedy": 5}]}, "at `$.remedies[0].remedy`"),
        ({"do": "tune", "for_s": "long"}, "bad request 'tune': "),
    ],
)
def test_nonsense_costs_no_connection(guest: Guest, request_: dict[str, object], reason: str) -> None:
    guest.send(encode(request_))
    error = guest.error()
    assert reason in str(error["message"])
    assert error["exit_code"] == 2
    assert guest.ask("ping")["ok"] is True
    assert guest.office.session.state.value == "watching"


def test_a_comparison_of_ranks_is_shown_to_all_and_nonsense_is_not(office: Office, guest: Guest) -> None:
    found = {"straggler": {"rank": 1, "pid": 8, "cause": "loader"}, "ranks": [{"rank": 1, "pid": 8}]}
    assert guest.ask("compared", found=found)["ok"] is True
    guest.send(encode({"do": "compared", "id": 6, "found": {"straggler": {"rank": "all"}}}))
    assert "$.found.straggler.rank" in str(guest.error()["message"])
    shown = Guest(office).ask("snapshot")["answer"]
    assert isinstance(shown, dict)
    assert (shown["straggler"]["cause"], [each["pid"] for each in shown["ranks"]]) == ("loader", [8])


@pytest.mark.parametrize(
    "raw",
    [
        raw_frame(b"{{{"),
        raw_frame(b'{"v":99,"do":"ping"}'),
        raw_frame(b"[1,2]"),
        (MAX_FRAME_BYTES + 1).to_bytes(4, "big"),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 64,
    ],
)
def test_garbage_is_answered_with_a_reason_and_shown_out_and_others_stay(office: Office, raw: bytes) -> None:
    other, vandal = Guest(office), Guest(office)
    vandal.send(raw)
    assert "bad frame" in str(vandal.error()["message"])
    assert office.service.free() == [vandal.client]
    assert other.ask("ping")["ok"] is True
    assert "detach" not in office.agent.asked


def test_a_client_that_hangs_up_frees_its_connection(office: Office, guest: Guest) -> None:
    assert guest.hang_up() == [guest.client]
    assert office.service.clients == []


def test_subscribers_get_snapshots_at_their_own_pace_and_narration(office: Office, guest: Guest) -> None:
    guest.ask("subscribe", every_ms=1000)
    assert office.service.watched
    office.later(1)
    assert guest.hear()["event"] == "snapshot"
    office.later(0.5)
    assert guest.hears_nothing()
    office.service.push(ActivityLine(text="tracing"))
    heard = guest.hear()
    assert (heard["event"], heard["body"]) == ("activity", {"text": "tracing"})
    office.later(0.5)
    assert guest.hear()["event"] == "snapshot"


def test_those_who_did_not_subscribe_are_left_in_peace(office: Office, guest: Guest) -> None:
    office.service.push(ActivityLine(text="tracing"))
    office.later(10)
    assert guest.hears_nothing()
    assert not office.service.watched


def test_a_subscriber_that_reads_nothing_is_dropped_others_are_served(office: Office, guest: Guest) -> None:
    sleeper = Guest(office)
    sleeper.ask("subscribe")
    for _ in range(60):
        office.service.push(ActivityLine(text="x" * 100_000))
        office.service.free()
    assert sleeper.client.gone
    assert sleeper.client not in office.service.clients
    assert guest.ask("ping")["ok"] is True


def test_remedies_are_switched_in_turn_and_a_refusal_stops_nothing(office: Office, guest: Guest) -> None:
    wanted = [msgspec.to_builtins(from_registry(name)) for name in ("optimizer.fused", "gc.freeze")]
    guest.send(encode({"do": "apply", "id": 5, "remedies": wanted, "most_class": "rounding"}))
    assert guest.hears_nothing()
    office.agent.answer("apply", ok=False, why="refused: no optimizer", code="not_met")
    assert office.agent.commands[-1] == (
        "apply",
        {"remedy": "gc.freeze", "options": {}, "allowed": ("bitwise", "rounding"), "prepare": False},
    )
    office.agent.answer("apply", token=1, arm=1, seq=9, **{"class": "bitwise"})
    outcome = msgspec.convert(guest.hear()["answer"], list[RemedyOutcome])
    assert outcome == [
        RemedyOutcome(remedy="optimizer.fused", why="refused: no optimizer", code=RefusalCode.NOT_MET),
        RemedyOutcome(remedy="gc.freeze", token=1, seq=9),
    ]


def test_remedies_still_to_come_when_a_tuning_begins_are_left_out(office: Office, guest: Guest) -> None:
    remedies = [msgspec.to_builtins(from_registry(name)) for name in ("gc.freeze", "optimizer.fused")]
    guest.send(encode({"do": "apply", "id": 9, "remedies": remedies}))
    assert office.session.begin_tuning() is None
    office.agent.answer("apply", token=1, arm=1, seq=5)
    assert office.agent.asked.count("apply") == 1
    outcome = guest.hear()["answer"]
    assert [each.get("why") for each in outcome] == [None, "the job is being tuned"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("refused", [False, True])
def test_a_rank_that_can_not_switch_is_measured_on(office: Office, guest: Guest, *, refused: bool) -> None:
    office.session.on_event({"event": "anatomy", "anatomy": anatomy()})
    guest.send(encode({"do": "together", "id": 5}))
    office.agent.answer("together", **({"ok": False, "why": "sharded"} if refused else {}))
    for _ in range(12):
        office.writer.model_step(StepModel())
    office.now_ns += 1_000_000_000
    office.session.tick()
    assert (office.session.state is State.SAMPLING) is refused


def test_detach_is_answered_when_it_is_done_and_subscribers_get_a_last_snapshot(office: Office) -> None:
    watcher, guest = Guest(office), Guest(office)
    watcher.ask("subscribe")
    guest.send(encode({"do": "detach", "id": 5}))
    assert guest.hears_nothing()
    office.service._log.lost_lines = 2
    office.agent.answer("detach", left=[])
    answer = msgspec.convert(guest.hear()["answer"], SessionEnding)
    assert (answer.kind, answer.left, answer.lost_lines) == ("detached", (), 2)
    office.service.end()
    assert msgspec.convert(watcher.hear()["body"], Diagnosis).final is True
    last = watcher.hear()
    assert last["event"] == "ended"
    ending = msgspec.convert(last["body"], SessionEnding)
    assert (ending.kind, ending.why, ending.decided) == ("detached", "detached", False)
    assert office.service.free() == [watcher.client, guest.client]


@pytest.mark.parametrize("keep", [True, False])
def test_detach_keep_waits_until_what_is_tried_is_off(office: Office, guest: Guest, *, keep: bool) -> None:
    settled = threading.Event()

    def tuner(bench: LiveBench, *_: object) -> TuningResult:
        settled.wait(5)
        return RESULT

    office.tuning._tuner = tuner
    assert guest.ask("tune")["ok"] is True
    guest.send(encode({"do": "detach", "keep": keep, "id": 6}))
    assert office.tuning._bench is not None
    assert office.tuning._bench.cancelled()
    assert office.tuning._bench._patience_s == (EVALUATION_S if keep else 0)
    assert ("detach" in office.agent.asked) is not keep
    settled.set()
    office.tuning.join(5)
    office.run_calls()
    assert [fields for do, fields in office.agent.commands if do == "detach"] == [{"keep": keep}]
    office.agent.answer("detach", left=[])
    assert office.session.ending is not None
    assert office.session.ending.kind == "detached"


def test_a_session_whose_starter_never_comes_ends(office: Office, guest: Guest) -> None:
    office.service.expect_owner()
    assert guest.ask("ping")["ok"] is True  # somebody who only looks does not own it
    office.later(19)
    assert "detach" not in office.agent.asked
    office.later(2)
    assert office.agent.asked[-1] == "detach"


@pytest.mark.parametrize("owned", [True, False])
def test_a_client_that_owns_a_session_may_let_it_stay(office: Office, guest: Guest, *, owned: bool) -> None:
    office.service.expect_owner()
    guest.ask("own")
    guest.ask("own", owned=owned)
    office.later(30)
    assert "detach" not in office.agent.asked
    guest.hang_up()
    assert ("detach" in office.agent.asked) is owned


@pytest.mark.parametrize("who", ["itself", "another"])
def test_a_session_that_is_to_stay_ends_only_for_who_said_so(office: Office, guest: Guest, who: str) -> None:
    office.service.expect_owner()
    guest.ask("own", owned=False)
    other = guest if who == "itself" else Guest(office)
    other.ask("own")
    other.hang_up()
    guest.hang_up()
    assert ("detach" in office.agent.asked) is (who == "itself")


@pytest.mark.parametrize("wanted_by", [None, "subscribe", "tune", "own"])
@pytest.mark.parametrize("how", ["leaves", "is killed"])
def test_a_session_goes_on_where_others_want_it_when_who_started_it_is_through(
    office: Office, guest: Guest, how: str, wanted_by: str | None
) -> None:
    through = threading.Event()

    def tuner(bench: LiveBench, *_: object) -> TuningResult:
        through.wait(5)
        return RESULT

    office.tuning._tuner = tuner
    office.service.expect_owner()
    guest.ask("own")
    if wanted_by is not None:
        other = Guest(office)
        assert other.ask(wanted_by, **({"owned": False} if wanted_by == "own" else {}))["ok"] is True
    if how == "leaves":
        guest.send(encode({"do": "detach", "if_unused": True, "id": 6}))
    else:
        guest.hang_up()
    assert ("detach" in office.agent.asked) is (wanted_by is None)
    if how == "leaves" and wanted_by is None:
        office.agent.answer("detach", left=["gc.freeze"])
        assert guest.hear()["answer"]["left"] == ["gc.freeze"]
    elif how == "leaves":
        assert guest.hear()["answer"] is None
    through.set()
    office.tuning.join(5)


@pytest.mark.parametrize("first", ["leaves", "is killed", "is killed with it"])
def test_a_session_nobody_owns_ends_with_the_last_listener(office: Office, guest: Guest, first: str) -> None:
    office.service.expect_owner()
    guest.ask("own")
    joined = Guest(office)
    joined.ask("subscribe")
    if first == "leaves":
        assert guest.ask("detach", if_unused=True)["answer"] is None
    guest.link.close()
    office.service.readable(guest.client)
    if first != "is killed with it":
        office.service.free()
    assert "detach" not in office.agent.asked
    joined.hang_up()
    assert "detach" in office.agent.asked


def test_what_a_tuning_without_a_client_has_kept_outlasts_other_clients(office: Office, guest: Guest) -> None:
    office.service.expect_owner()
    guest.ask("own")
    screen = Guest(office)
    screen.ask("tune", stays=True)
    assert guest.ask("detach", if_unused=True)["answer"] is None
    office.tuning.join(5)
    office.run_calls()
    for gone in (guest, screen):
        gone.hang_up()
    assert Guest(office).ask("detach", if_unused=True)["answer"] is None
    assert "detach" not in office.agent.asked


def test_the_log_can_be_read_through_the_session(guest: Guest) -> None:
    tail = msgspec.convert(guest.ask("log", lines=5)["answer"], LogTail)
    assert tail.path.endswith("session.jsonl")
    assert any('"attached"' in line for line in tail.lines)


def test_a_tuning_reports_to_its_client_and_to_all_who_listen(office: Office, guest: Guest) -> None:
    watcher = Guest(office)
    watcher.ask("subscribe")
    assert guest.ask("tune", for_s=60, only=["optimizer.fused"])["ok"] is True
    office.tuning.join(5)
    assert office.session.state.value == "tuning"
    office.run_calls()
    for ear in (guest, watcher):
        assert [ear.hear()["event"] for _ in range(3)] == ["progress", "trial", "tuned"]
    assert office.tuner.request == TuneRequest(for_s=60, only=["optimizer.fused"])
    assert office.session.state.value == "watching"


def test_the_clock_goes_on_in_a_pair(office: Office, guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LiveBench, "now_ns", lambda _: office.now_ns + 3_000_000_000)  # for its imports
    guest.ask("tune")
    office.tuning.join(5)
    office.calls.pop(0)()  # type: ignore[operator]
    office.later(2)
    office.later(0.5)
    told = [msgspec.convert(guest.hear()["body"], TuneProgress) for _ in range(2)]
    assert [each.elapsed_ns for each in told] == [0, 2_000_000_000]
    assert guest.hears_nothing()


def test_only_one_tuning_at_a_time(office: Office, guest: Guest) -> None:
    guest.ask("tune")
    answer = Guest(office).ask("tune")
    assert "being tuned" in str(answer["error"])
    office.tuning.join(5)


def test_a_tuners_fault_is_answered(office: Office, guest: Guest, capsys: pytest.CaptureFixture[str]) -> None:
    office.tuner.error = ZeroDivisionError("division by zero")
    guest.ask("tune")
    office.tuning.join(5)
    office.run_calls()
    heard = guest.hear()
    assert heard["event"] == "tune_failed"
    assert "ZeroDivisionError" in str(heard["body"])
    assert "Traceback" in capsys.readouterr().err
    assert office.session.state.value == "watching"


def test_a_client_that_leaves_cancels_its_tuning(office: Office, guest: Guest) -> None:
    guest.ask("tune")
    office.tuning.join(5)
    guest.hang_up()
    assert office.tuner.bench is not None
    assert office.tuner.bench.cancelled()
