"""What a screen may ask of a session: details, undo, pause, resume; and what it is refused."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest

from autobrrr.agent.wire.framing import encode
from autobrrr.client.session_client import Client
from autobrrr.records import Anatomy
from autobrrr.records.wire_answers import ActiveRemedy, Details
from autobrrr.sidecar.process.session_options import State
from autobrrr.sidecar.session.snapshot import recipe_now
from autobrrr.sidecar.tuning import live_bench
from autobrrr.sidecar.tuning.live_bench import LiveBench
from support.sessions.client import Session
from support.sessions.service import RESULT, Guest, Office
from support.sessions.session import read_log
from support.sessions.sidecar import StepModel, anatomy, traced

FUSED = ActiveRemedy(token=1, remedy="optimizer.fused", reach="live", class_="rounding")


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def details_of(guest: Guest) -> Details:
    answer = guest.ask("details")
    assert answer["ok"] is True, answer
    return msgspec.convert(answer["answer"], Details)


def on(office: Office, applied: ActiveRemedy = FUSED) -> None:
    office.session.active.on[applied.token] = applied


def test_details_list_the_remedies_that_may_be_tried_and_say_which_are_tried_by_default(
    office: Office,
) -> None:
    office.session.findings.anatomy = msgspec.convert(anatomy(), Anatomy)
    found = details_of(Guest(office))
    named = {each.remedy: each for each in found.remedies}
    assert named["optimizer.fused"].why
    assert {each.class_ for each in found.remedies} == {"bitwise", "rounding"}
    assert {each.class_ for each in found.manual} == {"stream", "changes-training"}
    assert next(each.reach for each in found.manual if each.remedy == "loader.workers") == "next_epoch"
    assert (found.active, found.recipe, found.paused) == ([], None, False)


def test_details_hold_the_steps_and_the_widest_operators(office: Office) -> None:
    for _ in range(40):
        office.writer.step(100_000_000)
        office.later(0.1)
    office.session.tick()
    office.session.on_event({"event": "traced", "traced": traced(StepModel())})
    found = details_of(Guest(office))
    assert found.history.median_ns[-1] == 100_000_000
    assert sum(found.history.counts) > 0
    assert [op.op for op in found.operators] == ["aten::addmm"]


def test_what_is_on_is_a_valid_recipe(office: Office) -> None:
    on(office)
    found = details_of(Guest(office))
    assert found.active[0].remedy == "optimizer.fused"
    assert found.recipe is not None
    assert found.recipe.problem is None
    assert '"optimizer.fused" = true' in found.recipe.text


def test_the_evidence_is_in_the_recipe_only_where_just_that_was_proven() -> None:
    proven = recipe_now([FUSED], RESULT, None)
    other = recipe_now([FUSED, msgspec.structs.replace(FUSED, token=2, remedy="gc.freeze")], RESULT, None)
    assert proven is not None
    assert other is not None
    assert "[evidence]" in proven.text
    assert "[evidence]" not in other.text
    assert recipe_now([], RESULT, None) is None


def test_a_remedy_that_was_kept_with_other_options_is_written_as_it_is_on() -> None:
    trial = msgspec.structs.replace(RESULT.trials[0], remedy="threads.intra_op", options={"threads": 1})
    tuned = msgspec.structs.replace(RESULT, kept=["threads.intra_op"], trials=[trial])
    for threads in (1, 2):
        applied = msgspec.structs.replace(FUSED, remedy="threads.intra_op", options={"threads": threads})
        found = recipe_now([applied], tuned, None)
        assert found is not None
        assert f"threads = {threads}" in found.text
        assert ("[evidence]" in found.text) == (threads == 1)


def test_undo_takes_a_remedy_off_by_its_token(office: Office) -> None:
    on(office)
    guest = Guest(office)
    guest.send(_frame("undo", token=1))
    office.agent.answer("undo")
    assert guest.hear()["answer"] is None
    assert details_of(guest).active == []


def test_undo_says_why_a_remedy_is_still_on(office: Office) -> None:
    on(office)
    guest = Guest(office)
    guest.send(_frame("undo", token=1))
    office.agent.answer("undo", ok=False, why="the model is compiling")
    assert guest.hear()["answer"] == "the model is compiling"


@pytest.mark.parametrize(("do", "fields"), [("undo", {"token": 1}), ("apply", {"remedies": []})])
def test_nobody_switches_remedies_under_a_tuner(office: Office, do: str, fields: dict[str, object]) -> None:
    assert office.session.begin_tuning() is None
    assert office.session.state is State.TUNING
    assert "being tuned" in str(Guest(office).ask(do, **fields)["error"])


def test_a_paused_tuner_rests_between_pairs_and_its_budget_stands_still(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = [1]
    monkeypatch.setattr(live_bench.time, "monotonic_ns", lambda: now_ns[0])
    tuned_bench = LiveBench(office.session, office.calls.append)
    resting = threading.Event()
    wait = tuned_bench._running.wait

    def waiting(timeout_s: float) -> bool:
        resting.set()
        now_ns[0] += 1_000_000_000
        return wait(timeout_s)

    monkeypatch.setattr(tuned_bench._running, "wait", waiting)
    tuned_bench.hold(True)
    assert tuned_bench.paused
    thread = threading.Thread(target=tuned_bench.rest_while_paused)
    thread.start()
    assert resting.wait(10)
    assert tuned_bench.now_ns() == 0
    tuned_bench.hold(False)
    thread.join(10)
    assert not thread.is_alive()
    assert now_ns[0] > 1
    assert tuned_bench.now_ns() == 0


@pytest.mark.parametrize("end", ["cancel", "session"])
def test_a_paused_tuner_is_woken_by_whatever_ends_it(office: Office, end: str) -> None:
    tuned_bench = LiveBench(office.session, office.calls.append)
    tuned_bench.hold(True)
    thread = threading.Thread(target=tuned_bench.rest_while_paused)
    thread.start()
    if end == "cancel":
        tuned_bench.cancel()
    else:
        office.session.job_ended()
    thread.join(10)
    assert not thread.is_alive()


def test_a_tuning_that_stays_does_not_end_with_the_client_that_asked(office: Office) -> None:
    stays, goes = Guest(office), Guest(office)
    assert stays.ask("tune", stays=True)["ok"] is True
    assert office.tuning.asked_by is None
    office.tuning.join(10)
    office.run_calls()
    assert goes.ask("tune")["ok"] is True
    office.tuning.join(10)
    office.run_calls()


def test_while_a_tuner_works_default_are_the_remedies_that_it_was_asked_for(office: Office) -> None:
    office.session.findings.anatomy = msgspec.convert(anatomy(), Anatomy)
    guest = Guest(office)
    assert guest.ask("tune", stays=True, only=["optimizer.fused"])["ok"] is True
    assert [each.remedy for each in details_of(guest).remedies] == ["optimizer.fused"]
    office.tuning.join(10)
    office.run_calls()
    assert len(details_of(guest).remedies) > 1
    assert guest.ask("tune", stays=True, allow="changes-training")["ok"] is True
    assert details_of(guest).manual == []
    office.tuning.join(10)
    office.run_calls()
    assert "no such class" in str(guest.ask("tune", allow="anything")["error"])


def test_a_session_leaves_snapshots_and_its_history_in_its_log(office: Office, tmp_path: Path) -> None:
    for _ in range(30):
        office.writer.step(100_000_000)
        office.later(3.0)
        office.session.tick()
    office.session.job_ended()
    kinds = [kind for kind, _ in read_log(tmp_path / "session.jsonl")]
    assert kinds.count("snapshot") >= 3
    assert kinds[-1] == "snapshot"
    assert "history" in kinds


def test_everything_that_a_subscriber_is_sent_comes_as_a_record() -> None:
    session = Session().answer()
    session.tell("progress", {"stage": "trial", "text": "trying"}).tell("tuned", RESULT)
    session.say({"event": "of another version"})
    session.tell("tune_failed", {"message": "no step ends", "hint": ""})
    session.end("job ended", "gone")
    found = [type(each).__name__ for each in Client(session.theirs).events()]
    assert found == ["TuneProgress", "Tuning", "TuneFailed", "Diagnosis"]


def _frame(do: str, **fields: object) -> bytes:
    return encode({"do": do, "id": 5, **fields})
