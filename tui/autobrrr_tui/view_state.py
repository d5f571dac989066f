"""What a screen knows of a session, how that grows with what the session says, and where it comes from.

Sources make it, live and of the past by one function; panes read it, nobody changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

import msgspec

from autobrrr.client.session_client import Client
from autobrrr.records import Diagnosis, RankLine, Trial, TuneProgress, Tuning
from autobrrr.records.events import Told
from autobrrr.records.wire_answers import ActiveRemedy, ActivityLine, Details, StepHistory
from autobrrr.report.pages.tuning_parts import trial_label, trial_line, tuned_words
from autobrrr.report.text.verdict_text import MEASURING


class ScreenStanding(Enum):
    """How the screen stands to its session."""

    OPENING = "opening"
    LIVE = "live"
    LOST = "lost"  # the sidecar is gone; looking for another
    ENDED = "ended"
    RECORDED = "recorded"
    REFUSED = "refused"  # never got in


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A line of the log."""

    number: int  # from 1; it stays when older lines are dropped
    t_ns: int | None  # since attach
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that happened to the job, where a chart over time shows it."""

    t_ns: int  # since attach
    text: str


NO_DETAILS = Details(history=StepHistory(bucket_ns=1_000_000_000))


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything that is drawn."""

    pid: int | None = None
    standing: ScreenStanding = ScreenStanding.OPENING
    why: str = ""  # what stands behind OPENING, LOST, ENDED, REFUSED
    hint: str = ""
    readonly: bool = False
    snapshot: Diagnosis | None = None
    judged: Diagnosis | None = None  # the last snapshot that named something
    timed: Diagnosis | None = None  # the last one that knew how long a step takes
    details: Details = NO_DETAILS
    progress: TuneProgress | None = None
    trials: tuple[Trial, ...] = ()
    tuned: Tuning | None = None
    failed: str = ""  # the last tuning ended without a result
    log: tuple[Said, ...] = field(default=())
    marks: tuple[Mark, ...] = ()
    log_path: str = ""
    silent_s: float = 0.0  # no step has ended for so long
    playing: bool = False  # more comes of a recording

    @property
    def ranks(self) -> Sequence[RankLine]:
        """Those of the job that are known; none for a job of one rank."""
        return (self.snapshot.ranks if self.snapshot is not None else None) or ()

    @property
    def active(self) -> Sequence[ActiveRemedy]:
        """The remedies that are on, the latest last."""
        return self.details.active

    @property
    def regime(self) -> str:
        """The word that stands on the first screen."""
        found = self.snapshot
        if found is None or (found.regime == "unknown" and found.state in MEASURING):
            return (
                "measuring" if self.standing in (ScreenStanding.OPENING, ScreenStanding.LIVE) else "unknown"
            )
        return found.regime

    @property
    def over(self) -> bool:
        """Whether no session comes any more."""
        return self.standing in (ScreenStanding.ENDED, ScreenStanding.REFUSED)

    @property
    def tuning(self) -> bool:
        """Whether a tuner is at work."""
        return self.snapshot is not None and self.snapshot.state == "tuning"

    @property
    def paused(self) -> bool:
        return self.tuning and self.details.paused

    @property
    def acting(self) -> bool:
        """Whether a key may touch the job."""
        return self.standing is ScreenStanding.LIVE and not self.readonly


LOG_LINES = 500
MARKS = 100
STATES = {  # what of a session's states shows in the steps
    "tracing": "trace",
    "profiling": "window",
    "probing": "probe",
    "sweeping": "sweep",
    "tuning": "tuning",
}
LOG_TEXT = 2000  # characters of one line


def take(view: View, word: Told) -> View:
    """The view after one more word."""
    if isinstance(word, Diagnosis):
        return _snapshot(view, word)
    if isinstance(word, Details):
        known = view.tuned
        if word.tuned is not None and (
            known is None or len(word.tuned.guard_undid) > len(known.guard_undid)  # since it was through
        ):
            view = retuned(view, word.tuned)
        return replace(view, details=word)
    if isinstance(word, ActivityLine):
        return heard(view, word)
    if isinstance(word, TuneProgress):
        return replace(view, progress=word, failed="")
    if isinstance(word, Trial):
        return said(_trial(view, word), trial_line(word))
    if isinstance(word, Tuning):
        view = replace(_through(view, word.kept), tuned=word, trials=tuple(word.trials))
        return said(view, f"tuned: {tuned_words(word)}")
    text = f"{word.message}; {word.hint}" if word.hint else word.message
    return said(replace(_through(view), failed=text), f"tuning failed: {text}")


def retuned(view: View, tuned: Tuning) -> View:
    """What the last tuning has come to by now."""
    return replace(view, tuned=tuned, trials=tuple(tuned.trials))


def heard(view: View, line: ActivityLine, t_ns: int | None = None) -> View:
    """A line of narration. A tuner switches a remedy with every block: its trials say what came of that."""
    return view if view.tuning and line.about == "switch" else said(view, line.text, t_ns)


def said(view: View, text: str, t_ns: int | None = None) -> View:
    """One more line in the log."""
    if t_ns is None and view.snapshot is not None:
        t_ns = view.snapshot.t_ns
    line = Said(number=view.log[-1].number + 1 if view.log else 1, t_ns=t_ns, text=text[:LOG_TEXT])
    return replace(view, log=(*view.log, line)[-LOG_LINES:])


def _snapshot(view: View, now: Diagnosis) -> View:
    before = view.snapshot
    if now.activity and now.state != "tuning" and (before is None or before.activity != now.activity):
        view = said(view, now.activity, now.t_ns)
    progress = view.progress if now.state == "tuning" else None
    if now.state == "tuning" and progress is None and view.tuned is not None:
        # What was kept is compared with all off once more: it is off in every other block only.
        now = msgspec.structs.replace(now, active=list(view.tuned.kept))
    named = now.regime != "unknown" or now.limit != "unknown"
    return replace(
        view,
        snapshot=now,
        judged=now if named else view.judged,
        timed=now if now.step_ns.median is not None else view.timed,
        pid=now.pid,
        progress=progress,
        marks=(*view.marks, *_marks(before, now))[-MARKS:],
    )


def _through(view: View, kept: Sequence[str] | None = None) -> View:
    """No tuner is at work any more, and what it kept is on; the last snapshot is of one of its blocks."""
    found = view.snapshot
    if found is not None and found.state == "tuning":
        on = found.active if kept is None else list(kept)
        found = msgspec.structs.replace(found, state="judged", activity="watching", active=on)
    return replace(view, snapshot=found, progress=None)


def _marks(before: Diagnosis | None, now: Diagnosis) -> list[Mark]:
    """What has begun, and what was switched outside a tuning, which switches with every block."""
    if now.t_ns is None:
        return []
    found: list[str] = []
    if now.state in STATES and (before is None or before.state != now.state):
        found.append(STATES[now.state])
    if before is not None and "tuning" not in (before.state, now.state):
        found += [f"+{short(each)}" for each in now.active if each not in before.active]
        found += [f"-{short(each)}" for each in before.active if each not in now.active]
    return [Mark(t_ns=now.t_ns, text=text) for text in found]


def short(remedy: str) -> str:
    """The last part of a remedy's name: `fused`."""
    return remedy.rpartition(".")[2]


def left_on(view: View, remedies: Sequence[str] = ()) -> View:
    """The session is over: these remedies alone are still on in the job."""
    left = [applied for applied in view.details.active if applied.remedy in remedies]
    view = replace(view, progress=None, details=msgspec.structs.replace(view.details, active=left))
    if view.snapshot is None:
        return view
    return replace(view, snapshot=msgspec.structs.replace(view.snapshot, active=list(remedies)))


def _trial(view: View, trial: Trial) -> View:
    """A trial that is told again replaces what was told before."""
    known, key = {trial_label(each): each for each in view.trials}, trial_label(trial)
    was_kept = key in known and known[key].outcome == "kept"
    trials, marks = tuple({**known, key: trial}.values()), view.marks
    if was_kept != (trial.outcome == "kept") and view.snapshot is not None:
        sign = "+" if trial.outcome == "kept" else "-"
        marks = (*marks, Mark(t_ns=view.snapshot.t_ns or 0, text=f"{sign}{short(trial.remedy)}"))
    return replace(view, trials=trials, marks=marks[-MARKS:])


Publish = Callable[[View], None]
Tell = Callable[[str], object]
Work = Callable[[Client], str | None]  # does one thing to a session; returns what became of it


class Source(Protocol):
    """One session, as screens see it."""

    def start(self, publish: Publish) -> None:
        """Begin to publish views, from a thread of its own."""

    def request(self, work: Work, tell: Tell, *, at_once: bool = False) -> None:
        """Do something to the job, on a thread of its own; `tell` gets what became of it, and a refusal.

        Args:
            at_once: Waits for no other request.
        """

    def close(self) -> None:
        """Leave. The session goes on."""
