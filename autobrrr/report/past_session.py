"""A session log read: the last verdict, what was tried, how it ended, and all that as one record."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from autobrrr.errors import UsageError
from autobrrr.folders import open_plain
from autobrrr.records import SCHEMA, Diagnosis, Record, Reverted, Trial, Tuning
from autobrrr.records.events import from_entry
from autobrrr.records.log_lines import NO_MOMENT, LogLines, lines_of
from autobrrr.records.tuning_records import after_trials
from autobrrr.records.wire_answers import SessionEnding
from autobrrr.report.session_timeline import SessionTimeline, TimelineReader

NO_END = "the log stops before the session's end"


class SessionData(Record, frozen=True, kw_only=True):
    """`report SESSION --json`."""

    schema: int = SCHEMA
    session: str  # name of the log
    ended: str = ""  # how; empty where the log does not say
    unread: str | None = None  # what of the log can't be read
    snapshot: Diagnosis  # the last one
    tuned: Tuning | None = None  # the last tuning that came to its end
    trials: list[Trial] = []  # of one that did not
    timeline: SessionTimeline = SessionTimeline()

    @property
    def ending(self) -> str:
        """How it ended, as far as the log says."""
        return self.ended or NO_END


@dataclass(frozen=True, slots=True, kw_only=True)
class PastSession:
    """A session log, as far as it can be read."""

    data: SessionData
    judged: Diagnosis | None  # the last snapshot that named something, if any did


def past_session(path: Path) -> PastSession:
    """Read a session log.

    Raises:
        UsageError: the file can't be read, or holds no session.
    """
    last: Diagnosis | None = None
    judged: Diagnosis | None = None
    tuned: Tuning | None = None
    trials: list[Trial] = []
    ended, course = "", TimelineReader()
    lines = LogLines(_opened(path))
    for line in lines:
        try:
            found = from_entry(line.kind, line.body)
        except msgspec.ValidationError as error:
            lines.pass_over(line.number, f"a {line.kind} of another version ({error})")
            continue
        if line.at_s is None:
            lines.pass_over(line.number, NO_MOMENT)
        course.take(line, found)
        if isinstance(found, Diagnosis):
            last = found
            judged = found if found.regime != "unknown" or found.limit != "unknown" else judged
        elif isinstance(found, Tuning):
            tuned, trials = found, []
        elif isinstance(found, Reverted) and tuned is not None:
            tuned = tuned.without(found)
        elif isinstance(found, Trial):
            trials.append(found)
        elif isinstance(found, SessionEnding):
            ended = found.why
    if last is None:
        raise UsageError(
            f"{path} holds no snapshot of a session{f'; {lines.said}' if lines.said else ''}",
            "a session writes one when it ends",
        )
    tried = trials if tuned is None else [*tuned.trials, *trials]
    if judged is not None and judged is not last:
        judged = msgspec.structs.replace(judged, advice=after_trials(judged.advice, tried, last.active))
    data = SessionData(
        session=path.name.partition(".")[0],
        ended=ended,
        unread=lines.said,
        snapshot=last,
        tuned=tuned,
        trials=trials,
        timeline=course.timeline(),
    )
    return PastSession(data=data, judged=judged)


def _opened(path: Path) -> Iterator[bytes]:
    """The lines of the log; raises UsageError where there is none."""
    try:
        os.close(open_plain(path))
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error}") from None
    return lines_of(path)
