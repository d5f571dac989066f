"""What is told by name: by a session to its clients, in its log and in a recording, and by an agent.

One name, one record. On the wire an event is `{"event": NAME, "body": record}`; in a log or a recording the
record is the body of an entry of that name.
"""

from __future__ import annotations

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
Event = Told | SessionEnding

# What else stands in a log (`attached`, what the agent measured) is for people.
ENTRIES: dict[str, type[Record]] = {
    "snapshot": Diagnosis,
    "activity": ActivityLine,
    "progress": TuneProgress,
    "trial": Trial,
    "tuned": Tuning,
    "tune_failed": TuneFailed,
    "ended": SessionEnding,  # the last that a client is sent, after the last snapshot
    "details": Details,
    "note": ActivityLine,
    "verdict": Verdict,
    "history": StepHistory,
    "guard": Reverted,
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
_ENTRY_OF = {record: name for name, record in reversed(ENTRIES.items())}  # the first name of two


def entry_of(record: Record) -> str:
    """The name under which a record is told, and a log holds it."""
    return _ENTRY_OF[type(record)]


def event_of(record: Event) -> dict[str, object]:
    """What is sent to clients."""
    return {"event": entry_of(record), "body": msgspec.to_builtins(record)}


def from_entry(kind: str, body: object) -> Record | None:
    """What an event, or an entry of a log, holds; None for what is not read again, or not known.

    Raises:
        msgspec.ValidationError: it is not what its name promises.
    """
    known = ENTRIES.get(kind)
    return None if known is None else as_record(body, known)
