"""A session log read: the last verdict, what was tried, how it ended, and its course on one clock.

In: the lines of a session log or a recording. Out: one record that a page draws and `--json` prints.
Moments are seconds since the first line. The log's clock is the wall's; a history says only how far back
its steps lie, so a second may be one too early or too late.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from autobrrr.errors import UsageError
from autobrrr.records import SCHEMA, CpuTaker, Diagnosis, Record, Reverted, Trial, Tuning
from autobrrr.records.gain_words import factor_words
from autobrrr.records.record_base import TwoNumbers
from autobrrr.records.tuning_records import after_trials
from autobrrr.records.wire_answers import ActivityLine, Details, SessionEnding, StepHistory
from autobrrr.report.log_lines import LogEntry, open_log
from autobrrr.report.page_model import table
from autobrrr.report.page_text import table_text
from autobrrr.report.pages.tuning_parts import trial_label

MOST_MARKS = 200
MOST_BANDS = 2000
MOST_SECONDS = 100_000  # that are drawn: the newest
MEASURED = {"traced": "steps were traced", "probed": "the batch was probed", "window": "steps were profiled"}


class TimelineSecond(Record, frozen=True, kw_only=True, array_like=True):
    """The steps that ended in one second."""

    at_s: float
    median_ns: int
    longest_ns: int


class TimelineBand(Record, frozen=True, kw_only=True):
    """A stretch in which a remedy was tried in A/B pairs, or was on."""

    kind: Literal["trial", "on"]
    from_s: float
    to_s: float
    text: str  # the remedy
    outcome: str | None = None  # of a trial
    levels_ns: TwoNumbers | None = None  # of a trial: mean step of the blocks without it, and with it


class TimelineMark(Record, frozen=True, kw_only=True):
    """Something that happened at one moment."""

    kind: Literal["measured", "switch", "verdict", "tuned", "ended"]
    at_s: float
    text: str


class SlowMoment(Record, frozen=True, kw_only=True):
    """A step that took several times the usual."""

    at_s: float
    ns: int
    usual_ns: int
    why: str | None  # what autobrrr knows of it


class SessionTimeline(Record, frozen=True, kw_only=True):
    """All of it; empty where the log holds none."""

    began_unix_s: float | None = None
    length_s: float = 0.0
    seconds: list[TimelineSecond] = []
    bands: list[TimelineBand] = []
    marks: list[TimelineMark] = []
    slow: list[SlowMoment] = []
    contention: list[CpuTaker] = []  # who took the CPUs, at most, in any snapshot


class SessionData(Record, frozen=True, kw_only=True):
    """`report SESSION --json`."""

    schema: int = SCHEMA
    session: str  # name of the log
    ended: str = ""  # how; empty where the log does not say
    alive: bool = False  # the session goes on
    runs: bool = False  # the job does
    unread: str | None = None  # what of the log can't be read
    snapshot: Diagnosis  # the last one
    tuned: Tuning | None = None  # the last tuning that came to its end
    trials: list[Trial] = []  # of one that did not
    timeline: SessionTimeline = SessionTimeline()

    @property
    def ending(self) -> str:
        """How it ended, as far as the log says."""
        return "the session goes on" if self.alive else self.ended or "the log stops before the session's end"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastSession:
    """A session log, as far as it can be read."""

    data: SessionData
    judged: Diagnosis | None  # the last snapshot that named something; if none did, the last after measuring

    @property
    def named(self) -> Diagnosis:
        """What is known of its bottleneck."""
        return self.judged or self.data.snapshot


class SessionReader:
    """Grows a session and its course from the lines of a log."""

    def __init__(self) -> None:
        self.last: Diagnosis | None = None
        self._judged: Diagnosis | None = None
        self._tuned: Tuning | None = None
        self._trials: list[Trial] = []
        self._ended = ""
        self._began_s: float | None = None
        self._now_s = 0.0
        self._seconds: dict[int, TimelineSecond] = {}
        self._bands: list[TimelineBand] = []
        self._marks: list[TimelineMark] = []
        self._slow: dict[int, SlowMoment] = {}
        self._takers: dict[int, CpuTaker] = {}
        self._on: dict[str, float] = {}  # remedy: since when
        self._regime = "unknown"
        self._tuning = False

    def take(self, line: LogEntry) -> None:
        """One more line."""
        found = line.found
        if self._began_s is None:
            self._began_s = line.at_s
        self._now_s = now_s = max(self._now_s, line.at_s - self._began_s)
        if line.kind in MEASURED:
            self._mark("measured", MEASURED[line.kind])
        elif isinstance(found, Details | StepHistory):
            self._take_history(found.history if isinstance(found, Details) else found)
        elif isinstance(found, Diagnosis):
            self._take_snapshot(found)
        elif isinstance(found, Trial):
            self._trials.append(found)
            without_ns, factor = found.without_ns, found.achieved
            levels_ns = [without_ns, without_ns / factor] if without_ns and factor else None
            self._bands.append(
                TimelineBand(
                    kind="trial",
                    from_s=max(0.0, now_s - found.duration_ns / 1e9),
                    to_s=now_s,
                    text=trial_label(found),
                    outcome=found.outcome_word,
                    levels_ns=levels_ns,
                )
            )
        elif isinstance(found, Tuning):
            self._tuned, self._trials, self._tuning = found, [], False
            self._turn_on([*self._on, *found.kept])
            self._mark("tuned", f"kept {', '.join(found.kept)}" if found.kept else "nothing was kept")
        elif isinstance(found, Reverted) and self._tuned is not None:
            self._tuned = self._tuned.without(found)
        elif isinstance(found, ActivityLine) and found.active is not None:
            self._turn_on(found.active)
            if not self._tuning:
                self._mark("switch", found.text)
        elif isinstance(found, SessionEnding):
            self._ended = found.why
            self._mark("ended", found.why)

    def session(self, last: Diagnosis, name: str, unread: str | None) -> PastSession:
        """What was read, up to the snapshot `last`."""
        tried = self._trials if self._tuned is None else [*self._tuned.trials, *self._trials]
        judged = self._judged
        if judged is not None and judged is not last:
            advice = after_trials(judged.advice, tried, last.active)
            judged = msgspec.structs.replace(judged, advice=advice)
        data = SessionData(
            session=name,
            ended=self._ended,
            unread=unread,
            snapshot=last,
            tuned=self._tuned,
            trials=self._trials,
            timeline=self.timeline(),
        )
        return PastSession(data=data, judged=judged)

    def timeline(self) -> SessionTimeline:
        """The course so far; of very many stretches and marks the newest."""
        self._turn_on(())
        seconds = [self._seconds[each] for each in sorted(self._seconds)][-MOST_SECONDS:]
        if seconds and seconds[0].at_s < 0:  # the job's steps before the first line
            seconds = [each for each in seconds if each.at_s >= 0]
        return SessionTimeline(
            began_unix_s=self._began_s,
            length_s=round(self._now_s, 3),
            seconds=seconds,
            bands=sorted(self._bands, key=lambda each: each.from_s)[-MOST_BANDS:],
            marks=self._marks[-MOST_MARKS:],
            slow=sorted(self._slow.values(), key=lambda each: each.at_s),
            contention=sorted(self._takers.values(), key=lambda each: -each.share),
        )

    def _take_history(self, history: StepHistory) -> None:
        width_s = history.bucket_ns / 1e9
        for back, (median_ns, longest_ns) in enumerate(
            zip(reversed(history.median_ns), reversed(history.longest_ns), strict=False)
        ):
            number = math.floor((self._now_s - back * width_s) / width_s) if width_s > 0 else 0
            if median_ns is not None and longest_ns is not None:
                self._seconds[number] = TimelineSecond(
                    at_s=round(number * width_s, 3), median_ns=median_ns, longest_ns=longest_ns
                )
        for step in history.slow:
            at_s = round(max(0.0, self._now_s - step.before_ns / 1e9), 3)
            self._slow[step.seq] = SlowMoment(at_s=at_s, ns=step.ns, usual_ns=step.usual_ns, why=step.why)

    def _take_snapshot(self, found: Diagnosis) -> None:
        self.last = found
        if names_something(found) or (
            found.state == "judged" and not (self._judged and names_something(self._judged))
        ):
            self._judged = found
        for taker in found.contention:
            known = self._takers.get(taker.pid)
            if known is None or known.share < taker.share:
                self._takers[taker.pid] = taker
        if found.regime not in (self._regime, "unknown"):
            self._regime = found.regime
            self._mark("verdict", f"regime: {found.regime} ({found.confidence})")
        self._tuning = found.state == "tuning"
        if not self._tuning:  # a tuner switches with every block
            self._turn_on(found.active)

    def _turn_on(self, active: Sequence[str]) -> None:
        """From now on these remedies are on, and no others."""
        for remedy in [each for each in self._on if each not in active]:
            from_s = self._on.pop(remedy)
            if self._now_s > from_s:
                self._bands.append(TimelineBand(kind="on", from_s=from_s, to_s=self._now_s, text=remedy))
        for remedy in active:
            self._on.setdefault(remedy, self._now_s)

    def _mark(self, kind: Literal["measured", "switch", "verdict", "tuned", "ended"], text: str) -> None:
        self._marks.append(TimelineMark(kind=kind, at_s=round(self._now_s, 3), text=text))


def names_something(found: Diagnosis) -> bool:
    """Whether it has a verdict."""
    return found.regime != "unknown" or found.limit != "unknown"


def past_session(path: Path) -> PastSession:
    """Read a session log.

    Raises:
        UsageError: the file can't be read, or holds no session.
    """
    lines, reader = open_log(path), SessionReader()
    for line in lines:
        reader.take(line)
    if reader.last is None:
        raise UsageError(
            f"{path} holds no snapshot of a session{f'; {lines.said}' if lines.said else ''}",
            "a session writes one when it ends",
        )
    return reader.session(reader.last, path.name.partition(".")[0], lines.said)


MOST_LISTED = 15  # each is read whole


def latest_sessions(state: Path) -> dict[str, PastSession | None]:
    """The newest logs below the state folder by name, the newest first; None where one can't be read."""
    folder = state / "sessions"
    logs = sorted(folder.glob("*.jsonl"), reverse=True)[:MOST_LISTED] if folder.is_dir() else []
    found: dict[str, PastSession | None] = dict.fromkeys(log.stem for log in logs)
    for log in logs:
        with suppress(UsageError):
            found[log.stem] = past_session(log)
    return found


def sessions_table(sessions: Mapping[str, PastSession | None], width: int | None = None) -> str:
    """A line for each session."""
    if not sessions:
        return "no session yet; autobrrr report demo shows a recorded one"
    rows = [(name, *_cells(found)) for name, found in sessions.items()]
    return table_text(table("", ("SESSION", "SCRIPT", "REGIME", "SPEED-UP", "ENDED"), rows), width)


def _cells(found: PastSession | None) -> tuple[str, str, str, str]:
    if found is None:
        return "-", "-", "-", "can't be read"
    named = found.named
    script = "?" if named.job is None else Path(named.job.script).name
    regime = f"{named.regime} ({named.confidence})"
    tuned = found.data.tuned
    gain = factor_words(tuned.speedup if tuned is not None and tuned.proven else None)
    return script, regime, gain, found.data.ended or "still running, or killed"
