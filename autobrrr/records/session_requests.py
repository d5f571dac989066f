"""What a client may ask of a session: one type a request, with its fields and the type of its answer.

On the wire a request is `{"do": TAG, "id": N, FIELDS}`, its answer `{"ok": true, "id": N, "answer": ...}`.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar, Union, get_args

from msgspec import Meta

from autobrrr.records.agent_records import CollectiveWaits
from autobrrr.records.rank_records import RanksCompared
from autobrrr.records.record_base import ExactnessClass, Record
from autobrrr.records.session_records import Diagnosis
from autobrrr.records.verdict_records import Advice
from autobrrr.records.wire_answers import Details, LogTail, RemedyOutcome, SessionEnding, SessionFacts

A = TypeVar("A")
Count = Annotated[int, Meta(ge=0)]
BOUNDARY_S, LONGEST_S = 120.0, 300.0  # for a step to end; longer than a session itself waits


class Request(Record, Generic[A], frozen=True, tag_field="do"):
    """Base; a `Request[A]` is answered with an A.

    Attributes:
        patience_s: The answer is waited for so long.
        changes_job: It is refused while a tuner compares, which it would spoil.
    """

    patience_s: ClassVar[float] = 15.0
    changes_job: ClassVar[bool] = False


class Ping(Request[SessionFacts], frozen=True, tag="ping"):
    """Which session this is."""


class TakeSnapshot(Request[Diagnosis], frozen=True, tag="snapshot"):
    """The session at this moment."""


class ShowDetails(Request[Details], frozen=True, tag="details"):
    """What a screen shows beside the snapshot."""


class ReadLog(Request[LogTail], frozen=True, tag="log"):
    """The end of the session's log."""

    lines: Annotated[int, Meta(ge=0, le=500)] = 50


class Subscribe(Request[None], frozen=True, tag="subscribe"):
    """Sends snapshots from now on, every so many milliseconds. None stops them."""

    every_ms: Count | None = 500


class OwnSession(Request[None], frozen=True, tag="own"):
    """The session goes on while this client uses it; or stays, whoever uses it."""

    owned: bool = True


class EndSession(Request[SessionEnding | None], frozen=True, tag="detach"):
    """End the session; answered once it is over, with None where it goes on."""

    patience_s: ClassVar[float] = LONGEST_S
    keep: bool = False  # leave the remedies on
    if_unused: bool = False  # only where nobody else owns it, listens, or has told it to stay


class Measure(Request[None], frozen=True, tag="measure"):
    """Measure all anew, or go on with it; or what else comes with the snapshots."""

    what: Literal["all", "window", "sweep"] = "all"
    probing: Literal["on", "off"] | None = None  # from now on


class HoldRank(Request[None], frozen=True, tag="hold"):
    """Begin no measurement until steps are compared, or for a minute; or go on."""

    held: bool = True


class CompareSteps(Request[CollectiveWaits], frozen=True, tag="compare"):
    """Timed steps of this rank, while the other ranks are asked for theirs."""

    patience_s: ClassVar[float] = LONGEST_S
    for_ns: Count


class TellCompared(Request[None], frozen=True, tag="compared"):
    """What came of the comparison; snapshots show it."""

    found: RanksCompared


class ApplyRemedies(Request[list[RemedyOutcome]], frozen=True, tag="apply"):
    """Remedies one after the other; a refusal of one is said and does not stop the rest."""

    patience_s: ClassVar[float] = BOUNDARY_S
    changes_job: ClassVar[bool] = True
    remedies: list[Advice]
    most_class: ExactnessClass | None = None  # the widest that they may have


class UndoRemedy(Request[str | None], frozen=True, tag="undo"):
    """One remedy goes off; answered with why it is still on."""

    patience_s: ClassVar[float] = BOUNDARY_S
    changes_job: ClassVar[bool] = True
    token: int


class SwitchTogether(Request[str], frozen=True, tag="together"):
    """From now on remedies go on and off on all ranks at one step; the address of what the ranks share."""

    patience_s: ClassVar[float] = BOUNDARY_S
    changes_job: ClassVar[bool] = True
    log: str = ""  # that address, of another rank; "" for the first


class TuneRequest(Request[None], frozen=True, kw_only=True, tag="tune"):
    """What a session is to try, and for how long; where None as usual. What comes of it are events."""

    changes_job: ClassVar[bool] = True
    for_s: float | None = None
    spent_s: float = 0.0  # of the user's time before that
    horizon_s: float | None = None
    max_loss: float | None = None  # share of its work that the job may lose in any five minutes
    allow: str | None = None  # the widest exactness class
    only: list[str] | None = None  # remedies
    stays: bool = False  # goes on when the client that asked leaves


class SteerTuning(Request[None], frozen=True, tag="steer"):
    """Cancel stops the tuner as soon as the job can be left; pause rests it, and its budget, after a pair."""

    what: Literal["pause", "resume", "cancel"]


REQUESTS: Any = Union[tuple(Request.__subclasses__())]  # noqa: UP007 - by their tags


def answer_type(request: Request[A]) -> type[A]:
    """What answers it."""
    (kind,) = get_args(type(request).__orig_bases__[0])  # type: ignore[attr-defined]
    found: type[A] = kind
    return found
