"""What is told by name: by a session to its clients, in its log and in a recording, and by an agent.

One name, one record. On the wire an event is `{"event": NAME, FIELD: record}`, or the record's own fields
beside the name; in a log or a recording the record is the body of an entry of that name.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from autobrrr.records.agent_records import (
    AgentCost,
    Anatomy,
    Census,
    CollectiveWaits,
    FrameSamples,
    HostSlack,
    JobFacts,
    ShadowProbe,
    TracedSteps,
)
from autobrrr.records.record_base import Record, as_record
from autobrrr.records.session_records import Diagnosis
from autobrrr.records.tuning_records import Reverted, Trial, TuneProgress, Tuning
from autobrrr.records.verdict_records import Verdict
from autobrrr.records.wire_answers import ActivityLine, Details, SessionEnding, StepHistory, TuneFailed

Told = Diagnosis | Details | ActivityLine | TuneProgress | Trial | Tuning | TuneFailed


class SessionOver(Record, frozen=True, kw_only=True, omit_defaults=True):
    """The last that a client is sent."""

    snapshot: Diagnosis
    ending: SessionEnding | None = None


Event = Told | SessionOver

# Of an event: its record, and the field that holds it; None where the record's own fields are the event's.
EVENTS: dict[str, tuple[type[Event], str | None]] = {
    "snapshot": (Diagnosis, "snapshot"),
    "activity": (ActivityLine, None),
    "progress": (TuneProgress, "progress"),
    "trial": (Trial, "trial"),
    "tuned": (Tuning, "tuning"),
    "tune_failed": (TuneFailed, "error"),
    "ended": (SessionOver, None),
}
# Of a log or a recording; what else stands there (`attached`, what the agent measured) is for people.
ENTRIES: dict[str, type[Record]] = {
    **{name: record for name, (record, _) in EVENTS.items()},
    "details": Details,
    "note": ActivityLine,
    "verdict": Verdict,
    "history": StepHistory,
    "guard": Reverted,
    "ended": SessionEnding,
}
# Of the agent: what it has measured, under the name of the event.
MEASURED: dict[str, type[Record]] = {
    "facts": JobFacts,
    "anatomy": Anatomy,
    "tracing": TracedSteps,
    "traced": TracedSteps,
    "probed": ShadowProbe,
    "collectives": CollectiveWaits,
    "frames": FrameSamples,
    "slack": HostSlack,
    "census": Census,
    "cost": AgentCost,
}
_EVENT_OF = {record: name for name, (record, _) in EVENTS.items()}
_ENTRY_OF = {record: name for name, record in reversed(ENTRIES.items())}  # the first name of two


def event_of(record: Event) -> dict[str, object]:
    """What is sent to clients."""
    name = _EVENT_OF[type(record)]
    field = EVENTS[name][1]
    body = msgspec.to_builtins(record)
    return {"event": name, **(body if field is None else {field: body})}


def from_event(message: Mapping[str, object]) -> Event | None:
    """What a client was sent; None for what this version does not know.

    Raises:
        msgspec.ValidationError: it is not what its name promises.
    """
    kind, field = EVENTS.get(str(message.get("event")), (None, None))
    return None if kind is None else as_record(message if field is None else message.get(field), kind)


def entry_of(record: Record) -> str:
    """The name under which a log holds a record."""
    return _ENTRY_OF[type(record)]


def from_entry(kind: str, body: Mapping[str, object]) -> Record | None:
    """What an entry of a log holds; None for what is not read again.

    Raises:
        msgspec.ValidationError: it is not what its name promises.
    """
    known = ENTRIES.get(kind)
    return None if known is None else as_record(body, known)
