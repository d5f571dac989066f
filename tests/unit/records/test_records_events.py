"""One name, one record: on the wire, in a log, and back."""

from __future__ import annotations

import msgspec
import pytest

from autobrrr.records import Advice, Reverted, TuneProgress
from autobrrr.records.events import ENTRIES, Event, entry_of, event_of, from_entry
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
    SessionEnding(kind="detached", why="detached", decided=True),
]


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)
def test_what_is_sent_is_what_is_read(record: Event) -> None:
    sent = msgspec.json.decode(msgspec.json.encode(event_of(record)))
    assert msgspec.to_builtins(from_entry(sent["event"], sent["body"])) == msgspec.to_builtins(record)


def test_what_a_later_version_tells_is_none() -> None:
    assert from_entry("something new", {}) is None
    assert from_entry("attached", {}) is None


def test_what_breaks_its_promise_raises() -> None:
    with pytest.raises(msgspec.ValidationError):
        from_entry("trial", None)
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
