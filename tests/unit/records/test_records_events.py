"""One name, one record: on the wire, in a log, and back."""

from __future__ import annotations

import msgspec
import pytest

from autobrrr.records import Advice, Reverted, TuneProgress
from autobrrr.records.events import (
    ENTRIES,
    EVENTS,
    Event,
    SessionOver,
    entry_of,
    event_of,
    from_entry,
    from_event,
)
from autobrrr.records.record_base import as_record
from autobrrr.records.wire_answers import ActivityLine, RemedyOutcome, SessionEnding, TuneFailed
from support.screens import tui

ASKED = {"remedy": "a", "reach": "live", "class": "bitwise"}
EXAMPLES: list[Event] = [
    tui.snapshot(),
    ActivityLine(text="tracing 6 steps"),
    TuneProgress(stage="trial", text="trying"),
    tui.trial(),
    tui.tuned(),
    TuneFailed(message="no step ends", exit_code=1),
    SessionOver(snapshot=tui.snapshot(), ending=SessionEnding(kind="detached", why="detached", decided=True)),
]


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)
def test_what_is_sent_is_what_is_read(record: Event) -> None:
    sent = msgspec.json.decode(msgspec.json.encode(event_of(record)))
    assert msgspec.to_builtins(from_event(sent)) == msgspec.to_builtins(record)


def test_every_event_has_an_example_here() -> None:
    assert {event_of(record)["event"] for record in EXAMPLES} == set(EVENTS)


def test_the_frames_are_those_of_earlier_versions() -> None:
    failed = TuneFailed(message="no step ends", hint="", exit_code=1)
    assert event_of(failed) == {
        "event": "tune_failed",
        "error": {"message": "no step ends", "hint": "", "exit_code": 1},
    }
    assert event_of(ActivityLine(text="on", about="switch")) == {
        "event": "activity",
        "text": "on",
        "about": "switch",
    }
    assert list(event_of(tui.tuned())) == ["event", "tuning"]
    assert list(event_of(SessionOver(snapshot=tui.snapshot()))) == ["event", "snapshot"]


def test_an_event_of_a_later_version_is_none() -> None:
    assert from_event({"event": "something new"}) is None
    assert from_event({}) is None
    assert from_entry("attached", {}) is None


def test_an_event_that_breaks_its_promise_raises() -> None:
    with pytest.raises(msgspec.ValidationError):
        from_event({"event": "trial", "trial": None})
    with pytest.raises(msgspec.ValidationError):
        from_entry("trial", {})


def test_an_entry_is_read_as_what_was_written() -> None:
    for record in (tui.snapshot(), tui.details(), tui.trial(), tui.tuned(), ActivityLine(text="x")):
        body = msgspec.json.decode(msgspec.json.encode(record))
        assert msgspec.to_builtins(from_entry(entry_of(record), body)) == body
    assert entry_of(Reverted(remedy="gc.freeze", why="x")) == "guard"
    assert entry_of(ActivityLine(text="x")) == "activity"
    assert set(ENTRIES) >= {"note", "history", "verdict", "ended"}


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ({"remedy": "\ud800"}, RemedyOutcome),
        ({**ASKED, "options": {"b": "\udcff"}}, Advice),
        ({**ASKED, "options": {"\udcff": 1}}, Advice),
        ([{"remedy": "\udfff"}], list[RemedyOutcome]),
    ],
)
def test_what_can_not_be_written_again_is_no_record(raw: object, kind: type[object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        as_record(raw, kind)
