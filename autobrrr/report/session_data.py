"""A past session as one record: what `report --json` prints and what its page lets a reader save."""

from __future__ import annotations

from autobrrr.records import SCHEMA, Diagnosis, Record, Trial, Tuning
from autobrrr.report.session_timeline import SessionTimeline
from autobrrr.report.text.session_text import PastSession


class SessionData(Record, frozen=True, kw_only=True):
    """`report SESSION --json`."""

    schema: int = SCHEMA
    session: str  # name of the log
    ended: str  # how; empty where the log does not say
    unread: str | None  # what of the log can't be read
    snapshot: Diagnosis  # the last one
    tuned: Tuning | None  # the last tuning that came to its end
    trials: list[Trial]  # of one that did not
    timeline: SessionTimeline


def session_data(session: PastSession) -> SessionData:
    """What was read of a log, to be printed or saved."""
    return SessionData(
        session=session.path.name.partition(".")[0],
        ended=session.ended,
        unread=session.unread,
        snapshot=session.last,
        tuned=session.tuned,
        trials=session.trials,
        timeline=session.timeline,
    )
